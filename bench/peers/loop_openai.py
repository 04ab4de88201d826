"""The openai client in a careful loop: each answer is appended to a file, and a restart asks only for what is not there.

usage: loop_openai.py JOB, which is JSON: url, table, out, state, system, schema, max_tokens, concurrency
"""

import asyncio
import json
import os
import sys

import pyarrow as pa
import pyarrow.parquet as pq
from openai import AsyncOpenAI

job = json.loads(sys.argv[1])
response_format = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": job["schema"]}}
kept = os.path.join(job["state"], "answers.jsonl")


def read_answers():
    answers = {}
    if os.path.exists(kept):
        for line in open(kept):
            try:
                answer = json.loads(line)
                answers[answer["id"]] = answer
            except ValueError:
                pass  # the line that a kill cut off
    return answers


async def main():
    client = AsyncOpenAI(base_url=job["url"], api_key="none", max_retries=10)
    slots = asyncio.Semaphore(job["concurrency"])

    async def ask(row):
        messages = [{"role": "system", "content": job["system"]}, {"role": "user", "content": row["body"]}]
        async with slots:
            for left in (1, 0):
                response = await client.chat.completions.create(
                    model="mock-1", messages=messages, max_tokens=job["max_tokens"], response_format=response_format
                )
                try:
                    answer = {"id": row["id"], **json.loads(response.choices[0].message.content)}
                    break
                except ValueError:
                    if left == 0:
                        raise
            lines.write(json.dumps(answer) + "\n")
            lines.flush()

    answers = read_answers()
    rows = [row for row in pq.read_table(job["table"]).to_pylist() if row["id"] not in answers]
    with open(kept, "a") as lines:
        lines.write("\n")
        results = await asyncio.gather(*map(ask, rows), return_exceptions=True)
    failed = [error for error in results if error is not None]
    print(f"{len(failed)} rows failed", *failed[:1], file=sys.stderr)


os.makedirs(job["state"], exist_ok=True)
asyncio.run(main())
os.makedirs(job["out"], exist_ok=True)
pq.write_table(pa.Table.from_pylist(list(read_answers().values())), os.path.join(job["out"], "answers.parquet"))
