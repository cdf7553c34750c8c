// Requests to the server that the page came from. An error is its own sentence, with the status.

export class Refused extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

const PATIENCE_MS = 30_000;

export async function ask(method, path, body, query) {
  const url = new URL(path, location.origin);
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, value);
  }
  const options = { method, headers: { Accept: "application/json", "X-Forebay": "1" } };
  // What changes something may take as long as it takes: its outcome must be seen.
  if (method === "GET") options.signal = AbortSignal.timeout(PATIENCE_MS);
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["Content-Type"] = "application/json";
  }
  let response;
  try { response = await fetch(url, options); }
  catch (error) {
    throw new Refused(0, error.name === "TimeoutError" ? "the server did not answer within 30 s" : "the server cannot be reached");
  }
  const text = await response.text();
  let found = null;
  try { found = text ? JSON.parse(text) : null; } catch { /* no JSON: thrown below */ }
  if (!response.ok) throw new Refused(response.status, found?.error ?? found?.detail ?? `the server answered ${response.status}`);
  return found;
}

export const get = (path, query) => ask("GET", path, undefined, query);
export const post = (path, body = {}) => ask("POST", path, body);
export const segment = encodeURIComponent;
