import { afterEach } from "vitest";
import { describeRunning } from "./running-commands.js";

// A test that reached its time limit says nothing of the command that it waits for.
afterEach(({ task }) => {
  const stuck = task.result?.state === "fail" ? describeRunning() : "";
  if (stuck !== "") {
    console.error(stuck);
  }
});
