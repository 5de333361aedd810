// Follows the server by events; a hidden tab closes its stream, as browsers open only six connections to a host.

const POLL_MS = 1000;
const PATIENCE_MS = 5000;

export function followStatus(onTexts, onConnection) {
  let source = null;
  let lastMs = 0;
  let timer = 0;

  function take(texts) {
    lastMs = performance.now();
    onConnection(true);
    onTexts(texts);
  }

  function open() {
    source = new EventSource("/api/events");
    source.addEventListener("status", (event) => take(JSON.parse(event.data)));
  }

  async function poll() {
    if (document.hidden || performance.now() - lastMs < PATIENCE_MS) return;
    try { // a proxy that holds events back does not hold answers back
      const answer = await fetch("/api/status");
      if (!answer.ok) throw new Error(answer.status);
      take((await answer.json()).texts);
      lastMs = 0;
    } catch {
      onConnection(false);
    }
    if (source !== null && source.readyState === EventSource.CLOSED) open();
  }

  function show() {
    if (document.hidden) {
      source?.close();
      source = null;
    } else if (source === null) {
      open();
    }
  }

  document.addEventListener("visibilitychange", show);
  timer = setInterval(poll, POLL_MS);
  show();
  return () => clearInterval(timer);
}
