// The list of datasets: search, results, mirrors, and ways to open them elsewhere.
import { copyText, element, setText, timeText } from "./texts.js";

const THUMBNAIL = 160;
const PAGE = 50; // datasets that are shown at a time
const TYPING_MS = 250;
const $ = (id) => document.getElementById(id);

export class DatasetList {
  constructor(list, onLook) {
    this.list = list;
    this.onLook = onLook;
    this.shown = "";
    this.newest = ""; // name of the dataset that changed last
    this.offsets = [0]; // of this page and those before
    this.next = null;
    this.runs = [];
    $("search").addEventListener("input", () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.turn([0]), TYPING_MS);
    });
    $("search-form").addEventListener("submit", (event) => event.preventDefault());
    $("older").addEventListener("click", () => this.turn([...this.offsets, this.next]));
    $("newer").addEventListener("click", () => this.turn(this.offsets.slice(0, -1)));
  }

  turn(offsets) {
    this.offsets = offsets;
    this.update().catch(() => {}); // the server is away: the alarm says so
  }

  async update() {
    const search = $("search").value.trim();
    const offset = this.offsets.at(-1);
    const answer = await fetch(`/api/datasets?${new URLSearchParams({ search, offset, limit: PAGE })}`);
    if (!answer.ok || search !== $("search").value.trim() || offset !== this.offsets.at(-1)) return; // typed on meanwhile
    const content = await answer.text();
    if (content === this.shown) return;
    const { datasets, total, next } = JSON.parse(content);
    if (!search && !offset) this.newest = datasets[0]?.name ?? "";
    this.next = next;
    const open = new Set([...this.list.querySelectorAll("details[open]")].map((one) => one.dataset.name));
    this.list.replaceChildren(...[...grouped(datasets)].map(([title, members]) => this.group(title, members, open)));
    setText($("dataset-count"), `${total.toLocaleString()} ${total === 1 ? "dataset" : "datasets"}${search ? ` with "${search}"` : ""}`);
    $("newer").hidden = this.offsets.length < 2;
    $("older").hidden = next === null;
    this.showSizes();
    this.shown = content; // last: what could not be shown is tried again
  }

  // runs: those that record now.
  showSizes(runs = this.runs) {
    this.runs = runs;
    for (const one of this.list.querySelectorAll("[data-size-of]")) {
      const run = runs.find(({ folder }) => folder === one.dataset.sizeOf);
      setText(one, run ? `${run.size} · ` : "");
    }
  }

  group(title, members, open) {
    const items = element("ul", { class: "entries" }, ...members.map((dataset) => this.entry(dataset, open)));
    return element("li", {}, element("h3", {}, title), items);
  }

  entry(dataset, open) {
    const url = `/api/datasets/${encodeURIComponent(dataset.name)}`;
    const image = element("img", { alt: "", loading: "lazy", width: 96, height: 96, src: `${url}/preview.jpg?max=${THUMBNAIL}` });
    image.addEventListener("error", () => image.classList.add("missing"));
    const look = element("button", { type: "button", class: "look", "aria-label": `look at ${dataset.name}` }, image);
    look.addEventListener("click", () => this.onLook(dataset.name));
    const receipt = dataset.receipt;
    const verdict = element("p", { class: "verdict" }, receipt ? receipt.verdict : dataset.state || dataset.format);
    verdict.dataset.is = receipt ? String(receipt.is_good) : "unknown";
    const facts = receipt ? [receipt.stored, receipt.size, ...receipt.gaps.map((gap) => gap.text)] : [];
    const mirrors = dataset.mirrors.map((name) => name.slice(dataset.name.length + 1)).join(", ");
    const size = element("span", { "data-size-of": dataset.name }); // while it is recorded
    const quiet = [...facts, timeText(dataset.changed_s), mirrors && `mirrors: ${mirrors}`].filter(Boolean).join(" · ");
    const more = [dataset.name, ...dataset.mirrors].map((one) => this.details(one, dataset, open));
    return element("li", {}, look, element("div", {}, element("h4", {}, dataset.name), verdict, element("p", { class: "quiet" }, size, quiet), ...more));
  }

  // Ways to open a dataset, or a mirror of it; asked for when they are wanted.
  details(name, dataset, open) {
    const lines = element("ul", { class: "lines" });
    const title = name === dataset.name ? "open in ..." : `open mirror ${name.slice(dataset.name.length + 1)} in ...`;
    const details = element("details", { "data-name": name }, element("summary", {}, title), lines);
    details.addEventListener("toggle", () => details.open && !lines.children.length && this.fillLines(lines, name, dataset));
    details.open = open.has(name);
    return details;
  }

  async fillLines(lines, name, dataset) {
    const answer = await fetch(`/api/datasets/${encodeURIComponent(name)}`);
    const found = answer.ok ? (await answer.json()).lines : [];
    if (dataset.receipt && name === dataset.name) found.push({ label: "check it", line: dataset.receipt.verify });
    lines.replaceChildren(...found.map(line));
    if (!found.length) setText(lines, "no frame yet");
  }
}

// By folder; those in none by the day of the last change.
function grouped(datasets) {
  const groups = new Map();
  for (const one of datasets) {
    const folder = one.name.slice(0, Math.max(0, one.name.lastIndexOf("/")));
    const title = folder.replaceAll("/", " / ") || timeText(one.changed_s, "day");
    groups.set(title, [...(groups.get(title) ?? []), one]);
  }
  return groups;
}

function line({ label, href, line: text }) {
  if (href) return element("li", {}, element("a", { href, target: "_blank", rel: "noreferrer" }, label));
  const button = element("button", { type: "button", "aria-label": `copy the line for ${label}` }, "copy");
  button.addEventListener("click", () => copyText(text, button));
  return element("li", {}, element("span", {}, label), element("code", {}, text), button);
}
