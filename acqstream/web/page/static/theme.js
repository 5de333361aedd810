// Day or night, and the brightness. No module: it runs before anything is drawn, so that a dark room stays dark.
(() => {
  const STEPS = [100, 70, 45, 25]; // percent
  const root = document.documentElement;
  const kept = (key) => {
    try {
      return localStorage.getItem(key);
    } catch {
      return null; // denied: the choice holds for this visit
    }
  };
  const keep = (key, value) => {
    try {
      localStorage.setItem(key, value);
    } catch {
      // denied, or full
    }
  };
  const setTheme = (theme) => {
    root.dataset.theme = theme;
    document.getElementById("theme")?.setAttribute("aria-pressed", theme === "night");
  };
  const setBrightness = (percent) => {
    const value = Number(percent) >= 20 && Number(percent) <= 100 ? Number(percent) : 100;
    root.style.setProperty("--dark", 1 - value / 100);
    const slider = document.getElementById("brightness");
    if (slider) slider.value = value;
    return value;
  };
  const turn = () => {
    setTheme(root.dataset.theme === "night" ? "day" : "night");
    keep("theme", root.dataset.theme);
  };
  const dim = (percent) => keep("brightness", setBrightness(percent));
  const show = () => {
    setTheme(kept("theme") === "night" ? "night" : "day");
    return setBrightness(kept("brightness") ?? 100);
  };
  show();
  document.addEventListener("DOMContentLoaded", () => {
    show();
    const slider = document.getElementById("brightness");
    document.getElementById("theme").addEventListener("click", turn);
    slider.addEventListener("input", () => dim(slider.value));
    document.addEventListener("keydown", (event) => {
      if (!event.key || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("select, textarea, input:not([type=range])")) return;
      const key = event.key.toLowerCase();
      if (key === "d") turn();
      else if (key === "b") dim(STEPS.find((one) => one < Number(slider.value)) ?? STEPS[0]);
    });
  });
})();
