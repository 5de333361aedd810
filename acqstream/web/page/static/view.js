// The view of the picture: zoom, pan, full screen, and the bar that shows its scale.
import { setText } from "./texts.js";

const MAX_SIDE = 1024; // of a picture of the whole frame
const MAX_CROP_SIDE = 2048; // of a part of it
const MAX_SCALE = 32; // pixels of the screen for one of the frame
const STEP = 1.25;
const GRID = 64; // parts begin at multiples of it, so that small moves ask for the same part
const BAR_PX = 140; // the longest scale bar
const KEYS = { "+": ["zoom", STEP], "=": ["zoom", STEP], "-": ["zoom", 1 / STEP], i: ["pan", 0, -1], k: ["pan", 0, 1], j: ["pan", -1, 0], l: ["pan", 1, 0], x: ["one"], z: ["fit"], f: ["full"] };
const $ = (id) => document.getElementById(id);
const clamped = (value, low, high) => Math.min(Math.max(low, high), Math.max(low, value));

export class PictureView {
  constructor() {
    this.stage = $("stage");
    this.canvas = $("picture");
    this.shape = null; // stored pixels (y, x) of the frame
    this.scale = 0; // pixels of the page for one that is stored; 0: all of the frame fits
    this.centre = [0, 0]; // stored pixel in the middle of the free area
    this.pixelUm = null;
    this.placed = { start: [0, 0], steps: [1, 1] }; // which pixels the canvas has
    this.pointers = new Map(); // those that are pressed, with their places
    this.onChange = () => {};
    for (const [id, ...action] of [["zoom-in", "zoom", STEP], ["zoom-out", "zoom", 1 / STEP], ["zoom-one", "one"], ["zoom-fit", "fit"], ["full", "full"]]) {
      $(id).addEventListener("click", () => this.act(action));
    }
    this.stage.addEventListener("wheel", (event) => this.turn(event), { passive: false });
    this.stage.addEventListener("dblclick", (event) => (this.scale ? this.fit() : this.zoomTo(1 / devicePixelRatio, event)));
    this.stage.addEventListener("pointerdown", (event) => this.press(event));
    this.stage.addEventListener("pointermove", (event) => this.drag(event));
    for (const kind of ["pointerup", "pointercancel"]) this.stage.addEventListener(kind, (event) => this.pointers.delete(event.pointerId));
    this.stage.addEventListener("lostpointercapture", (event) => event.target === this.stage && this.pointers.delete(event.pointerId));
    const sizes = new ResizeObserver(() => this.apply());
    for (const one of [this.stage, $("head"), $("controls")]) sizes.observe(one);
    document.addEventListener("fullscreenchange", () => document.fullscreenElement || this.setFull(false));
  }

  // Another dataset.
  reset() {
    this.shape = null;
    this.fit();
  }

  place(facts, described) {
    const isFirst = !this.shape;
    this.shape = described.shape.slice(0, 2); // of a mosaic it grows, and the view stays where it is
    this.pixelUm = described.pixel_um;
    this.placed = { start: facts.start, steps: facts.steps };
    if (isFirst || !this.scale) this.centre = this.shape.map((side) => side / 2);
    this.apply();
  }

  // The part of the stage that no control covers.
  area() {
    const stage = this.stage.getBoundingClientRect();
    const top = Math.max(stage.top, Math.min(stage.bottom, $("head").getBoundingClientRect().bottom));
    const bottom = Math.min(stage.bottom, Math.max(stage.top, $("controls").getBoundingClientRect().top));
    const { left, width } = stage;
    return bottom - top > 80 ? { left, width, top, height: bottom - top } : { left, width, top: stage.top, height: stage.height };
  }

  fitScale() {
    const { width, height } = this.area();
    return this.shape ? Math.min((width - 4) / this.shape[1], (height - 4) / this.shape[0]) : 1;
  }

  now() {
    return this.scale || this.fitScale();
  }

  // The place of the page that shows a stored pixel, and the other way round.
  toPage([y, x]) {
    const { left, top, width, height } = this.area();
    const scale = this.now();
    return [top + height / 2 + (y - this.centre[0]) * scale, left + width / 2 + (x - this.centre[1]) * scale];
  }

  toStored(clientY, clientX) {
    const { left, top, width, height } = this.area();
    const scale = this.now();
    return [this.centre[0] + (clientY - top - height / 2) / scale, this.centre[1] + (clientX - left - width / 2) / scale];
  }

  apply() {
    if (!this.shape) return;
    const { width, height } = this.area();
    const scale = this.now();
    this.centre = [height, width].map((side, axis) => {
      const half = side / 2 / scale;
      return 2 * half >= this.shape[axis] ? this.shape[axis] / 2 : clamped(this.centre[axis], half, this.shape[axis] - half);
    });
    const { start, steps } = this.placed;
    const stage = this.stage.getBoundingClientRect();
    const [top, left] = this.toPage(start);
    this.canvas.style.transform = `translate(${left - stage.left}px, ${top - stage.top}px) scale(${scale * steps[1]}, ${scale * steps[0]})`;
    this.canvas.dataset.is = scale * steps[0] > 1 ? "large" : "small";
    this.stage.dataset.is = this.scale ? "zoomed" : "fit";
    const step = this.scale * devicePixelRatio > 0.99 && steps[0] > 1 ? ` · 1:${steps[0]}` : ""; // more than a part may have
    setText($("zoom-text"), `${Math.round(100 * scale * devicePixelRatio).toLocaleString()} %${step}`);
    $("zoom-fit").setAttribute("aria-pressed", !this.scale);
    this.showBar(scale);
    this.onChange();
  }

  showBar(scale) {
    const bar = $("scale-bar");
    bar.hidden = !this.pixelUm;
    if (bar.hidden) return;
    const umPerPx = this.pixelUm[1] / scale;
    const most = BAR_PX * umPerPx;
    const power = 10 ** Math.floor(Math.log10(most));
    const um = power * [5, 2, 1].find((digit) => digit * power <= most);
    bar.firstElementChild.style.width = `${um / umPerPx}px`;
    const [factor, unit] = um >= 1000 ? [1e-3, "mm"] : um < 1 ? [1e3, "nm"] : [1, "µm"];
    setText(bar.lastElementChild, `${Number((um * factor).toPrecision(1)).toLocaleString()} ${unit}`);
  }

  // What the server is asked for: the part that is seen, where a picture of all has too few pixels; null: all.
  crop() {
    const device = this.scale * devicePixelRatio;
    const step = this.shape ? Math.ceil(Math.max(...this.shape) / MAX_SIDE) : 1;
    if (step === 1 || device * step <= 1) return null;
    const { left, top, right, bottom } = this.stage.getBoundingClientRect();
    const [begin, end] = [this.toStored(top, left), this.toStored(bottom, right)];
    const most = Math.floor(MAX_CROP_SIDE / Math.min(1, device)); // stored pixels that keep the wanted size
    const sides = [0, 1].map((axis) => {
      const part = (margin, grid) => {
        const from = clamped(grid * Math.floor((begin[axis] - margin) / grid), 0, this.shape[axis] - 1);
        return [from, clamped(grid * Math.ceil((end[axis] + margin) / grid), from + 1, this.shape[axis]) - from];
      };
      const seen = end[axis] - begin[axis];
      const wide = part(clamped((most - seen) / 2 - GRID, 0, seen / 4), GRID); // moves of the pointer are faster than answers
      return wide[1] <= most ? wide : part(0, 1);
    });
    const side = Math.max(sides[0][1], sides[1][1]) * Math.min(1, device);
    return { crop: [sides[0][0], sides[1][0], sides[0][1], sides[1][1]].join(), max: clamped(Math.ceil(side), 64, MAX_CROP_SIDE) };
  }

  // Zoom so that the pixel at a place of the page stays there; without a place, the one in the middle.
  zoomTo(scale, event = null) {
    if (!this.shape) return;
    const { left, top, width, height } = this.area();
    const [y, x] = event ? [event.clientY, event.clientX] : [top + height / 2, left + width / 2];
    const before = this.toStored(y, x);
    const fit = this.fitScale();
    const wanted = clamped(scale, Math.min(fit, 1 / devicePixelRatio), Math.max(MAX_SCALE, fit));
    this.scale = Math.abs(wanted / fit - 1) < 0.01 ? 0 : wanted;
    const after = this.toStored(y, x);
    this.centre = this.centre.map((one, axis) => one + before[axis] - after[axis]);
    this.apply();
  }

  // Moved along x and y, in pixels of the page.
  panBy(dx, dy) {
    const scale = this.now();
    this.centre = [this.centre[0] + dy / scale, this.centre[1] + dx / scale];
    this.apply();
  }

  // A pixel that left the view comes back into it.
  reveal(place) {
    const [begin, end] = [this.toStored(this.area().top, this.area().left), this.toStored(this.area().top + this.area().height, this.area().left + this.area().width)];
    if ([0, 1].every((axis) => begin[axis] <= place[axis] && place[axis] <= end[axis])) return;
    this.centre = place;
    this.apply();
  }

  fit() {
    this.scale = 0;
    this.apply();
  }

  turn(event) {
    if (event.deltaY > 0 && !this.scale) return; // nothing to zoom out of: the page scrolls
    event.preventDefault();
    this.zoomTo(this.now() * STEP ** clamped(-event.deltaY / 50, -3, 3), event);
  }

  press(event) {
    if (event.pointerType === "mouse" && event.button !== 0) return;
    this.pointers.set(event.pointerId, event);
    this.stage.setPointerCapture(event.pointerId);
  }

  drag(event) {
    const last = this.pointers.get(event.pointerId);
    if (!last) return;
    if (!event.buttons) return void this.pointers.delete(event.pointerId); // released where no event told it
    const others = [...this.pointers.values()].filter((one) => one.pointerId !== event.pointerId);
    this.pointers.set(event.pointerId, event);
    if (others.length === 1) {
      const distance = (one) => Math.hypot(one.clientX - others[0].clientX, one.clientY - others[0].clientY) || 1;
      this.zoomTo(this.now() * distance(event) / distance(last), others[0]);
    } else if (!others.length && this.scale) this.panBy(last.clientX - event.clientX, last.clientY - event.clientY);
  }

  setFull(isFull) {
    document.body.classList.toggle("full", isFull);
    $("full").setAttribute("aria-pressed", isFull);
    if (isFull) document.documentElement.requestFullscreen?.().catch(() => {}); // then it fills the window only
    else if (document.fullscreenElement) document.exitFullscreen();
    this.apply();
  }

  act([name, ...values]) {
    if (name === "zoom") this.zoomTo(this.now() * values[0]);
    else if (name === "pan") this.panBy(80 * values[0], 80 * values[1]);
    else if (name === "one") this.zoomTo(1 / devicePixelRatio);
    else if (name === "fit") this.fit();
    else this.setFull(!document.body.classList.contains("full"));
  }

  // Returns true for a key that is used here.
  key(event) {
    const action = KEYS[event.key.toLowerCase()];
    if (action) this.act(action);
    else if (event.key === "Escape" && document.body.classList.contains("full")) this.setFull(false);
    else return false;
    return true;
  }
}
