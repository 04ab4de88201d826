import { hostname } from "node:os";
import { expect, test } from "vitest";
import { attemptServices } from "#src/job/attempt.js";

const log = { info() {}, warn() {}, debug() {} };
const services = () => attemptServices({ retry: { max_seconds: 0 } }, log, new AbortController().signal);

test("the spool folder of another job in the same process is not removed as that of a dead process", () => {
  const [one, other] = [services(), services()];
  expect(one.writer).not.toBe(other.writer);
  expect(other.isDead(`${one.writer}.rows`)).toBe(false);
  expect(other.isDead(one.writer)).toBe(false);
  const host = hostname().replaceAll(/[^A-Za-z0-9-]/g, "_");
  expect(other.isDead(`${host}.${process.pid}.00000000.rows`), "a container before this one had our process id").toBe(
    true,
  );
});
