// The pixel under the pointer: its place, and the values that are stored there.
import { setText } from "./texts.js";

const PERIOD_MS = 300; // between questions, of which one is in progress at a time
const PATIENCE_MS = 5000;
const $ = (id) => document.getElementById(id);

export class PixelValue {
  constructor(live) {
    this.live = live;
    this.at = null; // place in the picture, as fractions of its height and width
    this.shown = { key: "", place: "" }; // the question that `text` answers
    this.text = "";
    this.isWanted = false;
    this.isAsking = false;
    const canvas = $("picture");
    for (const kind of ["pointerdown", "pointermove"]) canvas.addEventListener(kind, (event) => this.point(event));
    canvas.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && this.clear()); // a finger leaves its reading
    live.onDraw = () => this.update();
  }

  point(event) {
    const box = this.pictureBox();
    const y = (event.clientY - box.top) / box.height;
    const x = (event.clientX - box.left) / box.width;
    if (!(y >= 0 && y < 1 && x >= 0 && x < 1)) return this.clear(); // beside a picture that does not fill its element
    this.at = { y, x };
    this.update();
  }

  // By keys: one pixel of the picture; the first one goes to its middle.
  move(dy, dx) {
    const canvas = $("picture");
    const moved = (share, by, count) => Math.min(count - 1, Math.max(0, Math.floor(share * count) + by));
    const [y, x] = this.at ? [this.at.y, this.at.x] : [0.5, 0.5];
    const [row, column] = this.at ? [moved(y, dy, canvas.height), moved(x, dx, canvas.width)] : [Math.floor(canvas.height / 2), Math.floor(canvas.width / 2)];
    this.at = { y: (row + 0.5) / canvas.height, x: (column + 0.5) / canvas.width };
    this.update();
  }

  clear() {
    this.at = null;
    this.update();
  }

  // The part of the element that the picture covers: it keeps its proportions.
  pictureBox() {
    const canvas = $("picture");
    const box = canvas.getBoundingClientRect();
    const scale = Math.min(box.width / canvas.width, box.height / canvas.height);
    const [width, height] = [scale * canvas.width, scale * canvas.height];
    return { left: box.left + (box.width - width) / 2, top: box.top + (box.height - height) / 2, width, height };
  }

  // The stored pixel and the frames that are asked for; null without a point.
  question() {
    const { drawn, described } = this.live;
    if (!this.at || !drawn.length || !described) return null;
    const { steps } = drawn[0].facts;
    const canvas = $("picture");
    const y = Math.min(described.shape[0] - 1, Math.floor(this.at.y * canvas.height * steps[0]));
    const x = Math.min(described.shape[1] - 1, Math.floor(this.at.x * canvas.width * steps[1]));
    const query = new URLSearchParams({ y, x });
    for (const one of drawn) query.append("frame", JSON.stringify(one.facts.axes));
    const names = drawn.length > 1 ? drawn.map((one) => one.name) : [""];
    const place = JSON.stringify([this.live.name, y, x, drawn.map((one) => one.name)]);
    const key = JSON.stringify([place, drawn.map((one) => [one.facts.number, one.facts.axes])]);
    return { y, x, names, query, place, key };
  }

  // Called for a new point and a new picture.
  update() {
    const question = this.question();
    this.show(question);
    if (!question || question.key === this.shown.key) return;
    this.isWanted = true;
    if (!this.isAsking) this.ask();
  }

  async ask() {
    this.isAsking = true;
    while (this.isWanted && !document.hidden) {
      this.isWanted = false;
      const begin = performance.now();
      const question = this.question();
      if (question) await this.read(question);
      await new Promise((resolve) => setTimeout(resolve, Math.max(0, PERIOD_MS - (performance.now() - begin))));
    }
    this.isAsking = false;
  }

  async read(question) {
    let values = [];
    try {
      const url = `/api/datasets/${encodeURIComponent(this.live.name)}/values?${question.query}`;
      const answer = await fetch(url, { signal: AbortSignal.timeout(PATIENCE_MS) });
      if (answer.ok) ({ values } = await answer.json());
    } catch {
      // the server is away: the alarm says so
    }
    this.shown = question;
    this.text = question.names.map((name, place) => `${name} ${valueText(values[place])}`.trim()).join(" · ");
    this.show(this.question());
  }

  show(question) {
    const mark = $("pointer-mark");
    mark.hidden = !question;
    if (!question) return setText($("pixel"), "");
    const box = this.pictureBox();
    const stage = mark.parentElement.getBoundingClientRect();
    mark.style.left = `${box.left - stage.left + this.at.x * box.width}px`;
    mark.style.top = `${box.top - stage.top + this.at.y * box.height}px`;
    const { y, x, place } = question;
    const position = `y ${y.toLocaleString("en")}, x ${x.toLocaleString("en")}`;
    const size = this.live.described.pixel_um;
    const distance = size ? ` (${umText(y * size[0])}, ${umText(x * size[1])} µm)` : "";
    // Values of the previous frame stay until those of the next one come; those of another place do not.
    setText($("pixel"), `${position}${distance} · ${place === this.shown.place ? this.text : "…"}`);
  }
}

function valueText(values) {
  if (!values?.length) return "–";
  return values.map((value) => value.toLocaleString("en", { maximumSignificantDigits: 6 })).join(", ");
}

function umText(distance) {
  return distance.toLocaleString("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
}
