// Small pictures of the runs: which one is shown, and the next one.
import { element, setText } from "./texts.js";

const PERIOD_MS = 2000; // between pictures of a run
const MAX_RUNS = 12;
const SIDE = 128;
const $ = (id) => document.getElementById(id);

export class RunStrip {
  constructor(live) {
    this.live = live;
    this.runs = []; // {folder, name, state} of those that record, and of the one that is shown
    this.pictured = []; // those of them that have a small picture
    this.at = 0; // whose picture is asked for next
    $("next-run").addEventListener("click", () => this.next());
    this.loop();
  }

  follow(texts) {
    this.texts = texts;
    const shown = this.live.name;
    this.runs = texts.runs.map(({ folder, name, state }) => ({ folder, name, state: state.toLowerCase() }));
    if (shown && !this.runs.some((one) => one.folder === shown)) this.runs.unshift({ folder: shown, name: shown, state: "not recording" });
    this.pictured = this.runs.filter((run, place) => place < MAX_RUNS || run.folder === shown);
    const strip = $("strip");
    strip.hidden = this.pictured.length < 2;
    while (strip.children.length > this.pictured.length) strip.lastElementChild.remove();
    this.pictured.forEach((run, place) => {
      const item = strip.children[place] ?? strip.appendChild(this.item(place));
      if (item.dataset.folder !== run.folder) item.querySelector("canvas").width = 1;
      item.dataset.folder = run.folder;
      setText(item.querySelector("b"), run.name);
      setText(item.querySelector("small"), run.state);
      item.setAttribute("aria-pressed", run.folder === shown);
    });
    const next = this.following();
    $("next-run").hidden = !next;
    if (next) setText($("next-run"), `next run: ${next.name}`);
  }

  item(place) {
    const item = element("button", { type: "button" }, element("span", { class: "thumb" }, element("canvas", { width: 1, height: 1 })), element("span", {}, element("b"), element("small")));
    item.addEventListener("click", () => this.show(this.pictured[place]));
    return item;
  }

  // The run after the one that is shown, of those that record.
  following() {
    const place = this.runs.findIndex((one) => one.folder === this.live.name);
    const others = [...this.runs.slice(place + 1), ...this.runs.slice(0, Math.max(0, place))];
    return others.find((one) => one.state !== "not recording");
  }

  next() {
    const next = this.following();
    if (next) this.show(next);
    return Boolean(next);
  }

  show(run) {
    this.live.show(run.folder);
    this.live.follow(this.texts.runs);
    this.follow(this.texts);
  }

  async loop() {
    for (;;) {
      if (!$("strip").hidden && !document.hidden) await this.draw(this.at++ % this.pictured.length);
      await new Promise((resolve) => setTimeout(resolve, PERIOD_MS / Math.max(1, this.pictured.length)));
    }
  }

  async draw(place) {
    const { folder } = this.pictured[place];
    try {
      const answer = await fetch(`/api/datasets/${encodeURIComponent(folder)}/preview.jpg?max=${SIDE}`);
      const item = $("strip").children[place];
      if (!answer.ok || item?.dataset.folder !== folder) return;
      const image = await createImageBitmap(await answer.blob());
      const canvas = item.querySelector("canvas");
      [canvas.width, canvas.height] = [image.width, image.height];
      canvas.getContext("2d").drawImage(image, 0, 0);
      image.close();
    } catch {
      // the server is away: the alarm says so
    }
  }
}
