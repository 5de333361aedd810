// Follows the server by events; a hidden tab closes its stream, as browsers open only six connections to a host.

const CHECK_MS = 1000;
const ASK_AFTER_MS = 2500; // without an event; the server sends one each second
const PATIENCE_MS = 4000;

export function followStatus(onTexts, onConnection) {
  let source = null;
  let eventMs = 0; // of the last event
  let wordMs = 0; // of the last event or answer
  let isAsking = false;

  function take(texts) {
    wordMs = performance.now();
    onConnection(true);
    onTexts(texts);
  }

  function open() {
    source = new EventSource("/api/events");
    source.addEventListener("status", (event) => {
      eventMs = performance.now();
      take(JSON.parse(event.data));
    });
  }

  async function ask() { // a proxy that holds events back does not hold answers back
    isAsking = true;
    try {
      const answer = await fetch("/api/status", { signal: AbortSignal.timeout(PATIENCE_MS) });
      if (answer.ok) take((await answer.json()).texts);
    } catch {
      // no word: check reports it
    }
    isAsking = false;
  }

  function check() {
    if (document.hidden) return;
    const now = performance.now();
    if (now - wordMs >= PATIENCE_MS) onConnection(false, now - wordMs);
    if (now - eventMs >= ASK_AFTER_MS && !isAsking) ask();
    if (source !== null && source.readyState === EventSource.CLOSED) open();
  }

  function show() {
    if (document.hidden) {
      source?.close();
      source = null;
    } else if (source === null) {
      eventMs = wordMs = performance.now();
      open();
    }
  }

  document.addEventListener("visibilitychange", show);
  setInterval(check, CHECK_MS);
  show();
}
