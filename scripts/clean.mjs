// A build starts from an empty dist/: a file whose source is gone must not linger and be imported.
import { rmSync } from "node:fs";

rmSync(new URL("../dist", import.meta.url), { recursive: true, force: true });
