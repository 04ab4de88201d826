import type { PromptFaults } from "../prompt-server.js";

/** Faults as the torture of prompts has them. */
export const everyFault: PromptFaults;
