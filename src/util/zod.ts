import { z } from "zod";

// What it compiles for a schema pays after some hundreds of values. Here there is a spec and a plan.
z.config({ jitless: true });

export { z };
