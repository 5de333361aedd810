// Fills elements with texts, by the same attributes as the server does (page_template.py).
// Names come from producers: they are set as textContent only, and never become HTML.

export function fill(element, texts) {
  const data = element.dataset;
  if (data.show !== undefined) element.hidden = !texts[data.show];
  if (data.share !== undefined) element.value = texts[data.share];
  if (data.word !== undefined) element.dataset.is = String(texts[data.word]);
  if (data.text !== undefined) setText(element, texts[data.text]);
  if (data.time !== undefined) setText(element, timeText(texts[data.time]));
  if (data.list !== undefined) fillList(element, texts[data.list]);
  else for (const child of element.children) fill(child, texts);
}

export function setText(element, value) {
  const text = typeof value === "number" ? value.toLocaleString("en") : String(value);
  if (element.textContent !== text) element.textContent = text; // selected text stays selected
}

// A time (ISO 8601, or seconds since 1970) in the zone and the format of the reader; the clock alone if it is of today.
export function timeText(time, kind = "time") {
  const date = new Date(typeof time === "number" ? 1000 * time : time);
  if (Number.isNaN(date.getTime())) return "";
  if (kind === "day") return date.toLocaleDateString([], { dateStyle: "full" });
  const isToday = date.toDateString() === new Date().toDateString();
  return date.toLocaleString([], isToday ? { timeStyle: "short" } : { dateStyle: "medium", timeStyle: "short" });
}

export function fillList(list, items) {
  const template = document.getElementById(list.dataset.item);
  while (list.children.length > items.length) list.lastElementChild.remove();
  while (list.children.length < items.length) list.append(template.content.firstElementChild.cloneNode(true));
  items.forEach((item, place) => fill(list.children[place], item));
}

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children); // strings become text nodes
  return made;
}

export async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "copied";
  } catch {
    window.prompt("Copy this line:", text); // pages of other machines have no clipboard without https
  }
  setTimeout(() => (button.textContent = "copy"), 1500);
}
