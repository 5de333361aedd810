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

// An item keeps its element while others come and go: somebody may be typing in it.
export function fillList(list, items) {
  const template = document.getElementById(list.dataset.item);
  const keys = items.map((item, place) => String(item.id ?? item.name ?? place));
  const old = [...list.children];
  old.forEach((child, place) => (child.dataset.key ??= keys[place])); // those of the server have none yet
  const wanted = keys.map((key) => {
    const found = old.findIndex((child) => child.dataset.key === key);
    return found < 0 ? template.content.firstElementChild.cloneNode(true) : old.splice(found, 1)[0];
  });
  for (const child of old) child.remove();
  wanted.forEach((child, place) => {
    child.dataset.key = keys[place];
    if (list.children[place] !== child) list.insertBefore(child, list.children[place] ?? null);
    fill(child, items[place]);
  });
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
