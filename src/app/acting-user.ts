import { userInfo } from "node:os";

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Who decides on a run: the task of Airflow, whose variables name it, else the user of this process. A user without an
 * entry in the system's list of users, as in many containers, is named by number.
 */
export function actingUser(env: Environment): string {
  const { AIRFLOW_CTX_DAG_ID: dag, AIRFLOW_CTX_TASK_ID: task, AIRFLOW_CTX_DAG_OWNER: owner } = env;
  if (dag !== undefined) {
    return ["airflow", owner, dag, task].filter((part) => part !== undefined && part !== "").join("/");
  }
  try {
    return userInfo().username;
  } catch {
    return `uid ${process.getuid?.() ?? "unknown"}`;
  }
}
