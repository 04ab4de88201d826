import { spentText } from "../report.js";
import { spentFields, type SpentReport } from "./spending-report.js";

/** What an unfinished run has paid for so far; or why it is not known. */
export type PaidReport = SpentReport | string;

/** The answers that a run has kept, as a line for people. */
export function paidLine(paid: PaidReport): string {
  return `kept     ${typeof paid === "string" ? `unknown: ${paid}` : spentText(paid)}`;
}

/** The same under its JSON names. */
export function paidFields(paid: PaidReport): object {
  return typeof paid === "string" ? { kept: null, kept_error: paid } : { kept: spentFields(paid) };
}
