// The live picture: the newest frame of the chosen channel and plane, or a frame of the past.
import { drawComposite } from "./composite.js";
import { element, setText } from "./texts.js";
import { PictureView } from "./view.js";

const PERIOD_MS = 250; // four pictures per second, of all channels together
const MAX_COMPOSITE = 6; // channels in one picture
const DESCRIBE_MS = 1000;
const MAX_SIDE = 1024; // of a picture of the whole frame
const SLIDER_AXES = ["z", "position", "time"];
const FACTS = "Acqstream-Picture";
const $ = (id) => document.getElementById(id);

export class LivePicture {
  constructor() {
    this.name = ""; // folder of the dataset
    this.isDefault = true; // neither a run that recorded, nor chosen by a person
    this.described = null;
    this.fixed = {}; // axis -> value
    this.isLive = true;
    this.isAuto = false;
    this.isComposite = false; // fixed.channel is the one whose contrast is shown then
    this.limits = {}; // black and white of channels, as a person chose them
    this.drawn = []; // what the picture is made of: name and facts of each channel
    this.view = new PictureView();
    this.onDraw = () => {};
    this.drawnQuery = ""; // of the pictures that are shown
    this.facts = null;
    this.run = null; // texts of the run, while it runs
    this.changes = 0;
    this.isDescribed = false; // with its receipt, if it has ended
    this.askedMs = -Infinity; // when it was asked for what it is
    $("hold").addEventListener("click", () => this.setAuto(false));
    $("auto").addEventListener("click", () => this.setAuto(true));
    $("all-channels").addEventListener("click", () => this.setComposite());
    $("contrast-channel").addEventListener("input", () => this.showContrastOf(this.values("channel")[$("contrast-channel").selectedIndex]));
    for (const id of ["low", "high"]) $(id).addEventListener("input", () => this.setLimits());
    this.loop();
  }

  // The first run that records is shown. It stays when it has ended, until a person chooses another one.
  follow(runs) {
    if (this.isDefault && runs.length) this.show(runs[0].folder);
    const before = this.run;
    this.run = runs.find((run) => run.folder === this.name) ?? null;
    if (before && !this.run) { // its receipt and its last frame, also after a time without the server
      this.isDescribed = false;
      this.askedMs = -Infinity;
      this.drawnQuery = "";
      this.changes += 1;
    }
    if (this.run) {
      setText($("live-age"), this.isLive ? this.run.since_frame : "held");
      $("live-age").dataset.is = String(this.run.is_stale);
    } else {
      setText($("live-age"), this.name ? "not recording" : "");
      $("live-age").dataset.is = "false";
    }
  }

  show(name, isDefault = false) {
    if (!name) return;
    this.name = name;
    this.isDefault = isDefault;
    this.run = null;
    this.described = null;
    this.fixed = {};
    this.isPlaneChosen = false;
    this.isComposite = false;
    this.drawn = [];
    this.isLive = true;
    this.limits = {};
    this.facts = null;
    this.isDescribed = false;
    this.askedMs = -Infinity;
    this.drawnQuery = "";
    this.changes += 1;
    this.view.reset();
    $("live").hidden = false;
    setText($("live-name"), name);
    this.showControls();
  }

  async loop() {
    for (;;) {
      const begin = performance.now();
      if (this.name && !document.hidden) {
        try {
          if (begin - this.askedMs > DESCRIBE_MS && (this.run || !this.isDescribed)) await this.describe();
          await this.draw();
        } catch { // the server is away: the numbers say so
          if (!this.facts) this.showNothing("no picture");
        }
      }
      const periodMs = PERIOD_MS * Math.max(1, this.shownChannels().length);
      await new Promise((resolve) => setTimeout(resolve, Math.max(20, periodMs - (performance.now() - begin))));
    }
  }

  async describe() {
    const changes = this.changes;
    this.askedMs = performance.now();
    const answer = await fetch(`/api/datasets/${encodeURIComponent(this.name)}`);
    const described = answer.ok ? await answer.json() : null;
    if (changes !== this.changes) return;
    if (!described) { // asked for again
      if (answer.status === 404) this.showNothing("no frame yet");
      else if (!this.facts) this.showNothing("no picture");
      return;
    }
    this.described = described;
    this.isDescribed = true;
    const first = this.described.axes.channel?.values[0];
    if (first !== undefined && this.fixed.channel === undefined) this.fixed.channel = first;
    const planes = this.values("z");
    if (!this.isPlaneChosen && planes.length > 1) this.fixed.z = planes[Math.floor(planes.length / 2)]; // one plane stays in focus
    this.showControls();
  }

  // Values of the channel axis that are drawn; undefined without such an axis.
  shownChannels() {
    return this.isComposite ? this.values("channel").slice(0, MAX_COMPOSITE) : [this.fixed.channel];
  }

  query(channel) {
    const query = new URLSearchParams(this.view.crop() ?? { max: MAX_SIDE });
    for (const [axis, value] of Object.entries(this.fixed)) query.set(axis, axis === "channel" ? channel : value);
    const limits = this.limits[channel ?? ""];
    if (this.isAuto) query.set("auto", 1);
    else if (limits) {
      query.set("low", limits[0]);
      query.set("high", limits[1]);
    }
    return query;
  }

  async draw() {
    if (!this.described) return;
    const changes = this.changes;
    const queries = this.shownChannels().map((channel) => this.query(channel));
    const asked = queries.join();
    if (!this.run && asked === this.drawnQuery) return; // a run that has ended does not change
    const pictures = await Promise.all(this.shownChannels().map((channel, place) => this.load(channel, queries[place])));
    const loaded = pictures.filter((one) => one.image);
    if (changes === this.changes) { // else another frame was chosen meanwhile
      this.drawnQuery = loaded.length === pictures.length ? asked : "";
      this.showPictures(loaded, pictures);
    }
    for (const one of loaded) one.image.close();
  }

  async load(channel, query) {
    const place = this.values("channel").indexOf(channel);
    const name = place < 0 ? "" : this.channelName(place);
    const color = this.isComposite ? this.channelColor(place) : "";
    const answer = await fetch(`/api/datasets/${encodeURIComponent(this.name)}/preview.jpg?${query}`);
    if (!answer.ok) return { channel, name, status: answer.status };
    const facts = JSON.parse(answer.headers.get(FACTS));
    return { channel, name, color, facts, image: await createImageBitmap(await answer.blob()) };
  }

  showPictures(loaded, pictures) {
    if (!loaded.length) return this.showNothing(pictures.some((one) => one.status === 404) ? "no such frame yet" : "no picture");
    const canvas = $("picture");
    drawComposite(canvas, loaded);
    $("no-picture").hidden = true;
    const { facts } = loaded.find((one) => one.channel === this.fixed.channel) ?? loaded[0];
    canvas.dataset.number = facts.number;
    this.facts = facts;
    this.drawn = loaded.map(({ channel, name, facts }) => ({ channel, name, facts }));
    this.missing = pictures.filter((one) => !one.image).map((one) => one.name);
    this.showFacts(facts);
    this.view.place(facts, this.described);
    this.onDraw();
  }

  showNothing(text) {
    this.drawn = [];
    this.drawnQuery = "";
    if (!this.facts) this.showEmpty();
    this.onDraw();
    setText($("no-picture"), text);
    $("no-picture").hidden = false;
  }

  // Nothing of the dataset that was shown before stays under the name of this one.
  showEmpty() {
    const canvas = $("picture");
    canvas.width = canvas.height = 1;
    delete canvas.dataset.number;
    for (const id of ["live-facts", "saturated", "low-text", "high-text"]) setText($(id), "");
    $("histogram").replaceChildren();
    $("scale-bar").hidden = true;
  }

  showFacts(facts) {
    const shape = this.described.shape;
    const bits = this.described.bits ? `, ${this.described.bits} bit` : "";
    const axes = Object.entries(facts.axes).map(([axis, value]) => `${axis} ${value}`).join(", ");
    const missing = this.missing.length ? ` · no frame of ${this.missing.join(", ")}` : "";
    const names = this.drawn.map((one) => one.name).join(" + ");
    const composite = this.isComposite ? `${names}${missing} · ` : "";
    setText($("live-facts"), `${composite}frame ${facts.number.toLocaleString("en")} (${axes}) · ${shape[1]} x ${shape[0]} ${this.described.dtype}${bits}`);
    const saturated = facts.saturated;
    setText($("saturated"), saturated === null ? "" : `saturated ${(100 * saturated).toFixed(2)} %`);
    $("saturated").dataset.is = String(saturated !== null && saturated > 0.001);
    this.showContrast(facts);
    for (const slider of document.querySelectorAll("#sliders input")) {
      const value = facts.axes[slider.dataset.axis];
      const place = this.values(slider.dataset.axis).indexOf(value);
      if (document.activeElement !== slider && place >= 0) slider.value = place;
      if (value !== undefined) setText(slider.parentElement.querySelector("output"), value + this.distance(slider.dataset.axis, place));
    }
  }

  showContrast(facts) {
    const most = Math.log1p(Math.max(...facts.histogram));
    const bars = facts.histogram.map((count, bin) => `M${bin + 0.5} 32V${(32 - 31 * Math.log1p(count) / (most || 1)).toFixed(2)}`);
    const [low, high] = this.isAuto ? [facts.low, facts.high] : (this.limits[this.fixed.channel ?? ""] ?? [facts.low, facts.high]);
    const x = (value) => Math.min(96, Math.max(0, 96 * value / (facts.histogram_end || 1)));
    const svg = $("histogram");
    if (!svg.firstElementChild) {
      for (const name of ["bars", "black", "white"]) {
        const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
        path.setAttribute("class", name);
        svg.append(path);
      }
    }
    svg.children[0].setAttribute("d", bars.join(""));
    svg.children[1].setAttribute("d", `M${x(low).toFixed(2)} 0V32`);
    svg.children[2].setAttribute("d", `M${x(high).toFixed(2)} 0V32`);
    for (const [id, value] of [["low", low], ["high", high]]) {
      const input = $(id);
      input.max = Math.ceil(facts.histogram_end);
      if (document.activeElement !== input) input.value = value;
      setText($(`${id}-text`), Math.round(value).toLocaleString("en"));
    }
    $("hold").setAttribute("aria-pressed", !this.isAuto);
    $("auto").setAttribute("aria-pressed", this.isAuto);
  }

  setAuto(isAuto) {
    if (isAuto) this.limits = {};
    else if (this.isAuto) for (const { channel, facts } of this.drawn) this.limits[channel ?? ""] = [facts.low, facts.high];
    this.isAuto = isAuto;
    this.changes += 1;
  }

  setLimits() {
    const low = Number($("low").value);
    const high = Math.max(low + 1, Number($("high").value));
    this.isAuto = false;
    this.limits[this.fixed.channel ?? ""] = [low, high];
    if (this.facts) this.showContrast(this.facts);
    this.changes += 1;
  }

  // Where a value of an axis lies; "" where that is not known.
  distance(axis, place) {
    const [start, step, unit] = this.described.distances[axis] ?? [];
    return unit && place >= 0 ? ` · ${Number((start + place * step).toPrecision(6))} ${unit.replace("um", "µm")}` : "";
  }

  values(axis) {
    return this.described?.axes[axis]?.values ?? [];
  }

  channelColor(place) {
    return this.described.channels[place]?.color ?? "#ffffff";
  }

  channelName(place) {
    return this.described.channels[place]?.name || String(this.values("channel")[place]);
  }

  showControls() {
    const channels = this.values("channel");
    const buttons = $("channels");
    buttons.hidden = channels.length < 2;
    while (buttons.children.length > channels.length) buttons.lastElementChild.remove();
    channels.forEach((value, place) => {
      let button = buttons.children[place];
      if (!button) {
        button = element("button", { type: "button" });
        button.addEventListener("click", () => this.choose("channel", this.values("channel")[place]));
        buttons.append(button);
      }
      setText(button, this.channelName(place));
      button.style.setProperty("--channel", this.channelColor(place));
      button.setAttribute("aria-pressed", !this.isComposite && value === this.fixed.channel);
    });
    this.showCompositeControls(channels);
    const axes = SLIDER_AXES.filter((axis) => this.values(axis).length > 1);
    const sliders = $("sliders");
    if (sliders.dataset.axes !== axes.join()) {
      sliders.dataset.axes = axes.join();
      sliders.replaceChildren(...axes.map((axis) => this.slider(axis)));
    }
    for (const input of sliders.querySelectorAll("input")) input.max = this.values(input.dataset.axis).length - 1;
    const live = $("go-live");
    if (live) live.setAttribute("aria-pressed", this.isLive);
  }

  showCompositeControls(channels) {
    const all = $("all-channels");
    all.hidden = channels.length < 2;
    all.setAttribute("aria-pressed", this.isComposite);
    $("contrast-of").hidden = !this.isComposite;
    const select = $("contrast-channel");
    const shown = this.isComposite ? this.shownChannels() : [];
    const names = shown.map((_, place) => this.channelName(place));
    if (select.dataset.names !== names.join("\n")) {
      select.dataset.names = names.join("\n");
      select.replaceChildren(...names.map((name) => element("option", {}, name)));
    }
    select.selectedIndex = shown.indexOf(this.fixed.channel);
  }

  setComposite() {
    if (this.values("channel").length < 2) return;
    this.isComposite = true;
    if (!this.shownChannels().includes(this.fixed.channel)) this.fixed.channel = this.values("channel")[0];
    this.changes += 1;
    this.showControls();
  }

  showContrastOf(channel) {
    this.fixed.channel = channel;
    this.changes += 1;
  }

  slider(axis) {
    const input = element("input", { type: "range", min: 0, max: 0, step: 1, "aria-label": axis, "data-axis": axis });
    input.addEventListener("input", () => this.choose(axis, this.values(axis)[Number(input.value)]));
    const label = element("label", {}, element("span", { class: "axis" }, axis), input, element("output"));
    if (axis === "time") {
      const live = element("button", { type: "button", id: "go-live", title: "follow the newest frame (space)" }, "● live");
      live.addEventListener("click", () => this.setLive(!this.isLive));
      label.append(live);
    }
    return label;
  }

  // One value of an axis; on the time axis that holds the picture.
  choose(axis, value) {
    if (value === undefined) return;
    if (axis === "time") this.hold();
    if (axis === "z") this.isPlaneChosen = true;
    if (axis === "channel") this.isComposite = false;
    this.fixed[axis] = value;
    this.changes += 1;
    this.showControls();
  }

  hold() {
    if (this.isLive && this.facts) this.fixed = { ...this.facts.axes };
    this.isLive = false;
  }

  setLive(isLive) {
    if (isLive) {
      delete this.fixed.time;
      this.isLive = true;
    } else this.hold();
    this.changes += 1;
    this.showControls();
  }

  step(axis, by) {
    const values = this.values(axis);
    const now = this.fixed[axis] ?? this.facts?.axes[axis];
    const found = values.indexOf(now);
    const place = found < 0 ? values.length : found; // a frame may be newer than the list of values
    this.choose(axis, values[Math.min(values.length - 1, Math.max(0, place + by))]);
  }

  // Returns true for a key that is used here.
  key(event) {
    if (event.key === " ") this.setLive(!this.isLive);
    else if (event.key === "ArrowLeft") this.step("time", -1);
    else if (event.key === "ArrowRight") this.step("time", 1);
    else if (event.key === "PageUp") this.step("z", 1);
    else if (event.key === "PageDown") this.step("z", -1);
    else if (event.key === "a" || event.key === "A") this.setAuto(true);
    else if (event.key === "h" || event.key === "H") this.setAuto(false);
    else if (event.key === "0" && this.values("channel").length > 1) this.setComposite();
    else if (/^[1-9]$/.test(event.key) && this.values("channel").length >= Number(event.key)) {
      this.choose("channel", this.values("channel")[Number(event.key) - 1]);
    } else return this.view.key(event);
    return true;
  }
}
