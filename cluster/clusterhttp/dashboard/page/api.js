// The calls of the HTTP API, and the operator's token.

const timeout = 4000; // ms, for a response

// The only place of the token.
let token = "";
export function useToken(t) { token = t; }

export class Refused extends Error {
  constructor(status, problem) {
    super(problem.error || `the agent responded with status ${status}`);
    this.status = status;
    this.code = problem.code || "";
  }
}

async function ask(path, options, wait) {
  let answer, body;
  try {
    answer = await fetch(path, { ...options, cache: "no-store", signal: AbortSignal.timeout(wait) });
    body = await (answer.ok ? answer.json() : answer.json().catch(() => ({}))); // a response may end in the middle
  } catch (e) {
    throw new Error(e.name === "TimeoutError" ? `no response within ${wait / 1000} s` : "the agent cannot be reached", { cause: e });
  }
  if (!answer.ok) throw new Refused(answer.status, body);
  return body;
}

export const get = (path, wait = timeout) => ask(path, {}, wait);

export const post = (path, body = {}) => change("POST", path, body);
export const remove = (path) => change("DELETE", path, {});

function change(method, path, body) {
  const headers = { "Content-Type": "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  return ask(path, { method, headers, body: JSON.stringify(body) }, 15000);
}

// roomPath is the path of a room; . and .. must be escaped, because browsers treat them as
// directories.
export const roomPath = (name) => `v1/rooms/${encodeURIComponent(name).replace(/^\.{1,2}$/, (dots) => dots.replaceAll(".", "%2E"))}`;
