import { unitGuest } from "../decode/guest-url.js";
import { type EarlyThreads, startEarlyThreads } from "../engine/early-threads.js";
import { usableCores } from "./cores.js";

/** Begins what takes long on other cores than this one: before the command's own modules are loaded. */
export function startEarly(): EarlyThreads {
  return startEarlyThreads(usableCores(), [unitGuest]);
}
