import { z } from "zod";

// Compiling a schema pays after some hundreds of values. This program parses a spec and a plan.
z.config({ jitless: true });

export { z };
