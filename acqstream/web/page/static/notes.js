// Notes on the runs: a form in each card, and the latest notes below it.
import { element, setText } from "./texts.js";

const SHOWN = 5;

const nameOf = (card) => card.querySelector("[data-text=name]").textContent;
const folderOf = (card) => card.querySelector("[data-text=folder]").textContent;

// A note goes to the run for which it was begun.
export function takeNotes(runs) {
  runs.addEventListener("input", ({ target }) => {
    target.form.dataset.run = target.value && (target.form.dataset.run || nameOf(target.closest("article")));
  });
  runs.addEventListener("submit", async (event) => {
    event.preventDefault();
    const form = event.target;
    const [input, button, output] = form.elements;
    const text = input.value;
    const body = JSON.stringify({ name: form.dataset.run || nameOf(form.closest("article")), text });
    button.disabled = true;
    try {
      const answer = await fetch("/api/notes", { method: "POST", headers: { "Content-Type": "application/json" }, body });
      setText(output, answer.ok ? "noted" : `not stored: ${await answer.text()}`);
      if (answer.ok && input.value === text) input.value = form.dataset.run = ""; // else somebody types the next one
    } catch {
      setText(output, "not stored: the server does not answer");
    }
    button.disabled = false;
    await showNotes().catch(() => {}); // the server is away: the alarm says so
  });
}

export async function showNotes() {
  for (const card of document.querySelectorAll("#runs article")) {
    const folder = folderOf(card);
    const answer = await fetch(`/api/datasets/${encodeURIComponent(folder)}/notes`);
    const { count, notes } = answer.ok ? await answer.json() : { count: 0, notes: [] };
    const lines = notes.slice(0, SHOWN).map((note) => element("li", {}, element("time", { class: "quiet" }, new Date(note.time_ms).toLocaleTimeString()), ` frame ${note.frame ?? "-"} · ${note.text}`));
    if (count > SHOWN) lines.push(element("li", { class: "quiet" }, `and ${count - SHOWN} earlier`));
    if (folderOf(card) === folder) card.querySelector(".notes").replaceChildren(...lines);
  }
}
