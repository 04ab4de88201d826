import type { AnswerFiles } from "../common/answers/journal.js";
import { ifThere } from "../common/file-system.js";
import type { DiskTarget } from "./commit.js";
import { orRemove } from "./durable.js";
import { withFolders } from "./temporary.js";

/** How answers are kept on a disk: one attempt appends to a file until it is large. */
export function answerFiles({ fs, layout, check }: DiskTarget): AnswerFiles {
  return {
    readAtOnce: 1,
    pauseMs: 100,
    create: (path, text) =>
      withFolders({ fs, folders: [layout.answers], check }, () =>
        orRemove(fs, path, async () => {
          await fs.writeText(path, text);
          await fs.sync(path);
          await fs.sync(layout.answers);
          await fs.sync(layout.control); // the name of the folder is new, too
        }),
      ),
    async append(path, text) {
      await check();
      const added = await ifThere(
        (async () => {
          await fs.appendText(path, text);
          await fs.sync(path);
          return true;
        })(),
      );
      return added === true;
    },
  };
}
