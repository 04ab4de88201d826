import { expect, test } from "vitest";
import { type HttpEndpoint, verdictOf } from "#src/base/http/http.js";

const place = {
  doing: "loading model https://models.example/net.onnx",
  signal: new AbortController().signal,
} as HttpEndpoint;

const systemError = (code: string): Error => Object.assign(new Error("what Node says"), { code });

test.each(["DEPTH_ZERO_SELF_SIGNED_CERT", "CERT_HAS_EXPIRED", "ERR_TLS_CERT_ALTNAME_INVALID"])(
  "a server's certificate that is not trusted (%s) is permanent, and the hint says how to trust it",
  (code) => {
    expect(verdictOf(place, systemError(code))).toMatchObject({
      kind: "end",
      error: { code: "PERMISSION", hint: expect.stringContaining("NODE_EXTRA_CA_CERTS") as string },
    });
  },
);

test.each(["ECONNRESET", "HPE_INVALID_CONSTANT"])("a lost connection (%s) is transient", (code) => {
  expect(verdictOf(place, systemError(code))).toEqual({ kind: "again", found: code });
});

test("an unknown error of a request counts as a bug", () => {
  const error = new TypeError("x is not a function");
  expect(verdictOf(place, error)).toEqual({ kind: "end", error });
});
