// The last hour as small line charts, drawn as SVG.
import { element, setText } from "./texts.js";

const HOUR_S = 3600;
const MIN_SPAN_S = 300;
const WIDTH = 300;
const HEIGHT = 60;
const SERIES = [
  { place: 1, title: "MB per second", text: (value) => (value / 1e6).toFixed(value < 1e7 ? 1 : 0) },
  { place: 2, title: "frames per second", text: (value) => value.toFixed(value < 10 ? 1 : 0) },
  { place: 3, title: "frames waiting", text: (value) => value.toLocaleString("en") },
  { place: 4, title: "99 % published within", text: (value) => (value < 1 ? `${Math.round(1000 * value)} ms` : `${value} s`) },
];

export function drawPlots(grid, steps) {
  if (!grid.children.length) grid.append(...SERIES.map(makePlot));
  SERIES.forEach((series, number) => drawPlot(grid.children[number], series, steps));
}

function makePlot(series) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.append(document.createElementNS("http://www.w3.org/2000/svg", "path"));
  const axis = element("p", { class: "row quiet" }, element("span", { class: "begin" }), element("span", { class: "most" }), element("span", {}, "now"));
  return element("figure", {}, element("figcaption", {}, element("span", {}, series.title), element("b")), svg, axis);
}

function drawPlot(figure, series, steps) {
  const points = steps.map((step) => [step[0], step[series.place]]);
  const span = Math.min(HOUR_S, Math.max(MIN_SPAN_S, points.length ? points[0][0] : 0));
  setText(figure.querySelector(".begin"), span === HOUR_S ? "1 h ago" : `${Math.round(span / 60)} min ago`);
  const known = points.map((point) => point[1]).filter((value) => value !== null);
  const most = Math.max(0, ...known);
  let path = "";
  let isGap = true;
  for (const [age, value] of points) {
    if (value === null) { // a gap: the daemon did not answer, or no frame came
      isGap = true;
      continue;
    }
    const x = WIDTH * (1 - age / span);
    const y = HEIGHT - 2 - (HEIGHT - 4) * (most ? value / most : 0);
    path += `${isGap ? "M" : "L"}${x.toFixed(1)} ${y.toFixed(1)}`;
    if (isGap) path += "h0.01"; // a single point is seen, too
    isGap = false;
  }
  figure.querySelector("path").setAttribute("d", path);
  const last = points.length ? points[points.length - 1][1] : null;
  setText(figure.querySelector("b"), last === null ? "–" : series.text(last));
  setText(figure.querySelector(".most"), known.length ? `at most ${series.text(most)}` : "nothing yet");
  figure.querySelector("svg").setAttribute("aria-label", `${series.title}: ${figure.querySelector("b").textContent}`);
}
