import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { member } from './mcp-client.ts';

const ANSWER_MS = 60_000;
const STOP_MS = 8_000;

/** A client that starts a server as its child, and exchanges messages with it over stdin and stdout. */
export class StdioClient implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly #waiting = new Map<number, (result: unknown) => void>();
  #rest = '';
  #lastId = 0;

  constructor([command = '', ...args]: readonly string[]) {
    this.#child = spawn(command, args, { stdio: ['pipe', 'pipe', 'ignore'] });
    this.#child.stdout?.setEncoding('utf8').on('data', (text: string) => this.#read(text));
    this.#child.stdin?.on('error', () => undefined);
  }

  /** Sends a request. @throws {Error} if no answer arrives within a minute. */
  async request(method: string, params: object = {}): Promise<unknown> {
    const id = ++this.#lastId;
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    this.#waiting.set(id, resolve);
    const timer = setTimeout(() => reject(new Error(`${method} was not answered within ${ANSWER_MS} ms`)), ANSWER_MS);
    this.#write({ jsonrpc: '2.0', id, method, params });
    try {
      return await promise;
    } finally {
      clearTimeout(timer);
      this.#waiting.delete(id);
    }
  }

  notify(method: string): void {
    this.#write({ jsonrpc: '2.0', method });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const ended = once(this.#child, 'exit');
    this.#child.stdin?.end();
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), STOP_MS);
    await ended;
    clearTimeout(timer);
  }

  #write(message: object): void {
    this.#child.stdin?.write(`${JSON.stringify(message)}\n`);
  }

  #read(text: string): void {
    const lines = `${this.#rest}${text}`.split('\n');
    this.#rest = lines.pop() ?? '';
    for (const line of lines) {
      const message: unknown = JSON.parse(line);
      this.#waiting.get(Number(member(message, 'id')))?.(member(message, 'result'));
    }
  }
}
