// The pixel under the pointer: its place, and the values that are stored there.
import { setText } from "./texts.js";

const PERIOD_MS = 300; // between questions, of which one is in progress at a time
const PATIENCE_MS = 5000;
const $ = (id) => document.getElementById(id);

export class PixelValue {
  constructor(live) {
    this.live = live;
    this.view = live.view;
    this.at = null; // stored pixel (y, x), with fractions
    this.shown = { key: "", place: "" }; // the question that `text` answers
    this.text = "";
    this.isWanted = false;
    this.isAsking = false;
    for (const kind of ["pointerdown", "pointermove"]) $("stage").addEventListener(kind, (event) => this.point(event));
    $("stage").addEventListener("pointerleave", (event) => event.pointerType === "mouse" && this.clear()); // a finger leaves its reading
    live.onDraw = () => this.update();
    this.view.onChange = () => this.show(this.question());
  }

  point(event) {
    const at = this.view.toStored(event.clientY, event.clientX);
    if (!this.view.shape?.every((side, axis) => at[axis] >= 0 && at[axis] < side)) return this.clear(); // beside the picture
    this.at = at;
    this.update();
  }

  // By keys: one pixel of the picture; the first one goes to the middle of what is seen.
  move(...by) {
    const { centre, placed, shape } = this.view;
    if (!shape) return;
    const moved = (axis) => (Math.floor(this.at[axis] / placed.steps[axis]) + by[axis] + 0.5) * placed.steps[axis];
    this.at = (this.at ? [moved(0), moved(1)] : centre).map((one, axis) => Math.min(shape[axis] - 0.5, Math.max(0, one)));
    this.view.reveal(this.at);
    this.update();
  }

  clear() {
    this.at = null;
    this.update();
  }

  // The stored pixel and the frames that are asked for; null without a point.
  question() {
    const { drawn, described } = this.live;
    if (!this.at || !drawn.length || !described) return null;
    const [y, x] = this.at.map((one, axis) => Math.min(described.shape[axis] - 1, Math.floor(one)));
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
    const stage = mark.parentElement.getBoundingClientRect();
    const [top, left] = this.view.toPage(this.at);
    mark.style.left = `${left - stage.left}px`;
    mark.style.top = `${top - stage.top}px`;
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
