import type { Dice } from './dice.ts';
import type { SignToken } from './issuer-key.ts';

/** One input of a client, as bytes on a connection of its own. */
export interface Input {
  /** A text that no other input has. It is in the arguments or the name that the upstream gets. */
  readonly nonce: string;
  /** A short text for reports, which also says how the input was made. */
  readonly shown: string;
  readonly wire: Buffer;
  /** The bytes of the JSON-RPC message in it. */
  readonly message: Buffer;
  /** The port of the gateway that gets it. Default: that of clients. */
  readonly port?: number;
  /** True if its credentials or handles are forged, so that nothing may reach an upstream. */
  readonly isForged?: boolean;
}

/** The facts of a gateway under test that inputs need. */
export interface Target {
  readonly port: number;
  readonly operatorPort: number;
  readonly operatorKey: string;
  readonly key: string;
  /** The id of a session of 2025-11-25. */
  readonly session: string;
  readonly token: SignToken;
}

/** A kind of bad input. */
export interface Category {
  readonly name: string;
  /** Inputs of the part that `npm test` runs. */
  readonly inputs: number;
  /** True if the end of a connection ends an answer, because inputs may keep it open. */
  readonly mayStall?: boolean;
  /** Returns the input of a number. Equal for the same dice. */
  make(dice: Dice, nonce: string, target: Target): Input;
}

/** Returns the bytes of a POST of a message. */
export function postBytes({ port, key }: Target, headers: readonly string[], body: Buffer, path = '/mcp'): Buffer {
  const lines = [
    `POST ${path} HTTP/1.1`,
    `host: 127.0.0.1:${port}`,
    `authorization: Bearer ${key}`,
    'content-type: application/json',
    'accept: application/json, text/event-stream',
    'connection: close',
    `content-length: ${body.length}`,
    ...headers,
  ];
  return Buffer.concat([Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1'), body]);
}

const MAX_SHOWN = 300;

/** Returns bytes as a short text without control characters. */
export function shownBytes(bytes: Buffer): string {
  const text = JSON.stringify(bytes.toString('utf8')).slice(1, -1);
  return text.length <= MAX_SHOWN ? text : `${text.slice(0, MAX_SHOWN)}… (${bytes.length} bytes)`;
}
