import { fileURLToPath } from 'node:url';
import { type Job, parseRound, type Round } from './job.ts';
import { pinned, Program } from './program.ts';

/**
 * Time besides warming up and measuring: handshakes, with up to one process per session, and the end of the sessions.
 */
const LOAD_EXTRA_MS = 90_000;

/**
 * Runs one round of load in a process of its own. @param subject named in the error if the round fails. @throws
 * {Error}
 */
export async function playLoad(
  job: Job,
  subject: Program,
  { name, dir, core }: { readonly name: string; readonly dir: string; readonly core: number | undefined },
): Promise<Round> {
  const script = fileURLToPath(new URL('load.ts', import.meta.url));
  const command = pinned(core, [process.execPath, script, JSON.stringify(job)]);
  await using load = await Program.start(name, command, dir);
  const code = await load.exited(job.warmMs + job.measureMs + LOAD_EXTRA_MS);
  if (code !== 0) {
    const said = (await load.log()).trim();
    const state = subject.running ? '' : ' and has died';
    throw await subject.failure(`failed in ${name} (${code === null ? 'no end to it' : said})${state}`);
  }
  return parseRound(await load.log());
}
