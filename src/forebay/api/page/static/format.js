// Numbers, sizes, ages and times as people read them.

const WHOLE = new Intl.NumberFormat("en");
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const number = (value) => (value === null || value === undefined ? "–" : WHOLE.format(value));
export const short = (value) => (value === null || value === undefined ? "–" : Math.abs(value) < 10_000 ? WHOLE.format(Math.round(value)) : SHORT.format(value));

export function rate(value) {
  if (value === null || value === undefined) return "–";
  return `${value > 0 && value < 10 ? value.toFixed(1) : short(value)}/s`;
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let power = 0;
  while (value >= 1024 && power < units.length - 1) { value /= 1024; power += 1; }
  return `${power && value < 10 ? value.toFixed(1) : Math.round(value)} ${units[power]}`;
}

export function age(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.001) return seconds > 0 ? "< 1 ms" : "0 s";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${Number(seconds.toFixed(1))} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.round((seconds % 86400) / 3600)} h`;
}

export const since = (time, now = Date.now()) => (time ? Math.max(0, (now - Date.parse(time)) / 1000) : null);
export const ago = (time, now) => (time ? age(since(time, now)) : "–");

export function clock(time) {
  if (!time) return "–";
  const date = new Date(time);
  const text = date.toLocaleTimeString("en-GB");
  return date.toDateString() === new Date().toDateString() ? text : `${date.toLocaleDateString("en-CA")} ${text}`;
}

export const many = (count, one, more = `${one}s`) => `${number(count)} ${count === 1 ? one : more}`;

// A payload as text: JSON in lines, anything else as it is.
export function payload(data, encoding) {
  if (encoding === "base64") return `(bytes, base64)\n${data}`;
  const line = JSON.stringify(data);
  return line.length <= 80 ? line : JSON.stringify(data, null, 2);
}
