import { JobError } from "#src/base/errors.js";
import type { HttpEndpoint } from "#src/base/http/http.js";

/** Tools with which a call that is tried again is tried at once. */
export const retriesAtOnce: HttpEndpoint["retry"] = {
  maxSeconds: 0,
  nowMs: () => 0,
  random: () => 1,
  sleep: () => Promise.resolve(),
  warn() {},
  warnedMs: new Map(),
};

/** How a test reaches a server, but for what it says. */
export const placeWith = (more: Partial<HttpEndpoint>): HttpEndpoint => ({
  doing: "loading a model",
  retry: retriesAtOnce,
  signal: new AbortController().signal,
  refused: ({ status }) => new JobError("PERMISSION", `HTTP ${status}`),
  hint: "",
  findProxy: () => undefined,
  ...more,
});
