// The page: starts its parts and gives them what the server sends.
import { DatasetList } from "./datasets.js";
import { followStatus } from "./events.js";
import { LivePicture } from "./live.js";
import { showNotes, takeNotes } from "./notes.js";
import { PixelValue } from "./pixel.js";
import { drawPlots } from "./plots.js";
import { RunStrip } from "./strip.js";
import { copyText, fill, fillList, setText, timeText } from "./texts.js";

const ARROWS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
const SLOW_MS = 10000; // between looks at the last hour and the list of datasets
const $ = (id) => document.getElementById(id);
const PARTS = ["header", "#alarm", "#idle", "#runs", "#ended", "footer", "title"];

const live = new LivePicture();
const pixel = new PixelValue(live);
const strip = new RunStrip(live);
const datasets = new DatasetList($("dataset-list"), (name) => {
  live.show(name);
  $("live").scrollIntoView({ block: "nearest" });
});
let runs = "";
let last = { runs: [], ended: [] };

function showTexts(texts) {
  last = texts;
  for (const run of texts.runs) run.sentence = [run.safe_text, run.ends_at && `ends ${timeText(run.ends_at)}`, run.to_come_text].filter(Boolean).join(" · ");
  for (const part of PARTS) fill(document.querySelector(part), texts);
  live.follow(texts.runs);
  if (!live.name && !texts.runs.length) live.show(texts.ended[0]?.folder ?? datasets.newest, true);
  showReceipt();
  strip.follow(texts);
  datasets.showSizes(texts.runs);
  const now = [...texts.runs, ...texts.ended].map((run) => run.id + (run.status ?? "")).join();
  if (now !== runs) slowUpdate(); // a run began or ended
  runs = now;
}

// The receipt of what is shown stays, also when the server lists the run as ended no more.
function showReceipt() {
  const isListed = [...last.runs, ...last.ended].some((run) => run.folder === live.name);
  const receipt = isListed ? null : live.described?.receipt;
  fillList($("receipt"), receipt ? [{ name: live.name, ...receipt }] : []);
}

function showConnection(isGood, silenceMs = 0) {
  setText($("connection"), isGood ? "live" : "the server does not answer");
  document.body.classList.toggle("away", !isGood);
  if (!isGood) {
    document.title = "⚠ no answer";
    const alarm = `no word from acqstream web for ${Math.round(silenceMs / 1000)} s: these numbers are old`;
    fill($("alarm"), { alarm, alarm_level: "bad", alarm_why: "" });
  }
}

async function slowUpdate() {
  if (document.hidden) return;
  try {
    const answer = await fetch("/api/history");
    if (answer.ok) drawPlots($("plot-grid"), (await answer.json()).steps);
    await datasets.update();
    await showNotes();
  } catch {
    // the server is away; the numbers say so
  }
}

document.addEventListener("keydown", (event) => {
  if (!event.key || event.target.closest("select, textarea, input:not([type=range])")) return;
  const isTyping = event.target.closest("input, button, summary, a");
  const isOwnKey = isTyping && (event.key === " " || event.key.startsWith("Arrow") || event.key.startsWith("Page"));
  if (event.ctrlKey || event.metaKey || event.altKey || isOwnKey || $("live").hidden) return;
  if (event.shiftKey && event.key in ARROWS) {
    pixel.move(...ARROWS[event.key]);
    event.preventDefault();
    return;
  }
  if (event.key.toLowerCase() === "n" ? strip.next() : live.key(event)) event.preventDefault();
});
for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", () => copyText($(button.dataset.copy).textContent, button));
}
const port = location.port || "80";
setText($("ssh"), `ssh -L ${port}:127.0.0.1:${port} ${$("alarm") && document.querySelector(".host").textContent}`);
takeNotes($("runs"));
followStatus(showTexts, showConnection);
setInterval(slowUpdate, SLOW_MS);
slowUpdate();
