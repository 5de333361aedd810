// The list of datasets, each with a thumbnail, its result, and ways to open it elsewhere.
import { copyText, element, setText } from "./texts.js";

const THUMBNAIL = 160;

export class DatasetList {
  constructor(list, onLook) {
    this.list = list;
    this.onLook = onLook;
    this.shown = "";
  }

  async update() {
    const answer = await fetch("/api/datasets");
    if (!answer.ok) return;
    const { datasets } = await answer.json();
    const content = JSON.stringify(datasets);
    if (content === this.shown) return;
    this.shown = content;
    const open = new Set([...this.list.querySelectorAll("details[open]")].map((one) => one.dataset.name));
    this.list.replaceChildren(...datasets.map((dataset) => this.entry(dataset, open.has(dataset.name))));
    if (!datasets.length) this.list.append(element("li", { class: "quiet" }, "no dataset yet"));
  }

  entry(dataset, isOpen) {
    const url = `/api/datasets/${encodeURIComponent(dataset.name)}`;
    const image = element("img", { alt: "", loading: "lazy", width: 96, height: 96, src: `${url}/preview.jpg?max=${THUMBNAIL}` });
    image.addEventListener("error", () => image.classList.add("missing"));
    const look = element("button", { type: "button", class: "look", "aria-label": `look at ${dataset.name}` }, image);
    look.addEventListener("click", () => this.onLook(dataset.name));
    const receipt = dataset.receipt;
    const verdict = element("p", { class: "verdict" }, receipt ? receipt.verdict : dataset.state || dataset.format);
    verdict.dataset.is = receipt ? String(receipt.is_good) : "unknown";
    const facts = receipt ? [receipt.stored, receipt.size, ...receipt.gaps.map((gap) => gap.text)].filter(Boolean).join(" · ") : "";
    const changed = new Date(1000 * dataset.changed_s);
    const text = element("div", {}, element("h3", {}, dataset.name), verdict, element("p", { class: "quiet" }, [facts, changed.toLocaleString()].filter(Boolean).join(" · ")), this.details(dataset, url, isOpen));
    return element("li", {}, look, text);
  }

  details(dataset, url, isOpen) {
    const lines = element("ul", { class: "lines" });
    const details = element("details", { "data-name": dataset.name }, element("summary", {}, "open in ..."), lines);
    details.addEventListener("toggle", () => details.open && !lines.children.length && this.fillLines(lines, url, dataset));
    details.open = isOpen;
    return details;
  }

  async fillLines(lines, url, dataset) {
    const answer = await fetch(url);
    const found = answer.ok ? (await answer.json()).lines : [];
    if (dataset.receipt) found.push({ label: "check it", line: dataset.receipt.verify });
    lines.replaceChildren(...found.map(line));
    if (!found.length) setText(lines, "no frame yet");
  }
}

function line({ label, href, line: text }) {
  if (href) return element("li", {}, element("a", { href, target: "_blank", rel: "noreferrer" }, label));
  const button = element("button", { type: "button" }, "copy");
  button.addEventListener("click", () => copyText(text, button));
  return element("li", {}, element("span", {}, label), element("code", {}, text), button);
}
