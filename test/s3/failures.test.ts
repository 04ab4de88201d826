import { expect, test } from "vitest";
import { classify } from "#src/stores/objects/s3.js";

const call = { act: "listing s3://lake/in/", action: "list" } as Parameters<typeof classify>[1];

const socketError = (code: string): Error => Object.assign(new Error("what Node says"), { code });

test.each([
  ["EPROTO", /does not speak TLS/],
  ["ERR_SSL_WRONG_VERSION_NUMBER", /does not speak TLS/],
  ["DEPTH_ZERO_SELF_SIGNED_CERT", /certificate is not trusted/],
])("a TLS handshake with a store that fails with %s is permanent", (code, message) => {
  expect(classify(socketError(code), call)).toMatchObject({
    kind: "permanent",
    error: { code: "PERMISSION", message: expect.stringMatching(message) as string },
  });
});

test("an error of a store's connection that is not known is a bug", () => {
  expect(classify(socketError("ERR_INVALID_ARG_TYPE"), call)).toEqual({ kind: "bug" });
});
