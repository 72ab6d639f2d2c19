import { fileURLToPath } from 'node:url';
import * as z from 'zod';
import { Child } from '../support/child.ts';

const file = (name: string) => fileURLToPath(new URL(`../fixtures/conformance/${name}`, import.meta.url));

const READY_MS = 20_000;
const READY = z.object({ url: z.url() });

export const ERAS = ['legacy', 'modern', 'both'] as const;
/** The revisions that an upstream supports: up to 2025-11-25, only 2026-07-28, or all. */
export type Era = (typeof ERAS)[number];

export const TRANSPORTS = ['http', 'stdio'] as const;
export type TransportKind = (typeof TRANSPORTS)[number];

/** A server that Node runs. */
export interface Program {
  readonly file: string;
  readonly args: readonly string[];
}

export const conformanceProgram = (era: Era): Program => ({ file: file('server.ts'), args: ['--era', era] });
export const TASKS_PROGRAM: Program = { file: file('tasks-server.ts'), args: [] };
export const OTHER_PROGRAM: Program = { file: file('other.ts'), args: [] };

/** Returns the config entry that starts it over stdio. */
export const overStdio = (program: Program) => ({
  command: process.execPath,
  args: [program.file, '--stdio', ...program.args],
});

/** A fixture that is listening. */
export interface Served extends AsyncDisposable {
  readonly url: string;
  logs(): string;
}

export async function overHttp(program: Program): Promise<Served> {
  const child = await Child.start(process.execPath, [program.file, '--http', ...program.args]);
  try {
    const { url } = await child.waitForLine((line) => READY.parse(JSON.parse(line)), READY_MS);
    return { url, logs: () => child.logs(), [Symbol.asyncDispose]: () => child[Symbol.asyncDispose]() };
  } catch (error) {
    await child.stop();
    throw error;
  }
}
