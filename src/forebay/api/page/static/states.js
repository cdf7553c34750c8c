import { h } from "./dom.js";

const TONES = {
  COMPLETE: "good", RUNNING: "good", running: "good", closed: "good", EXPORTING: "good", LEASED: "good",
  ERROR: "bad", failed: "bad", lost: "bad", open: "bad", STOPPED: "bad",
  COLD_QUEUED: "cold", PAUSED: "warn", paused: "warn", restarting: "warn", half_open: "warn", CANCELLED: "warn", FILTERED: "warn",
};

export const stateOf = (name) => h("span", { class: `state ${TONES[name] ?? ""}` }, name);
