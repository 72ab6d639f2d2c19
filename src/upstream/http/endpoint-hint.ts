import { HttpStatusError } from '../rpc/http-status-error.ts';

/** Statuses of a server that has something else at this path, or nothing. */
const NOT_HERE = new Set([404, 405, 410]);

const ENDPOINT = /\/(?:mcp|sse)\/?$/;

/** Segments that are words, such as `api` or `v1`. Others may be keys: some providers put those in the path. */
const WORD = /^(?:[A-Za-z][A-Za-z._~-]{0,19}\d{0,2})?$/;

/**
 * Returns a sentence for the operator when the server at this URL has no MCP endpoint; undefined for any other failure. Names
 * neither the query nor credentials, and no segment of the path that may be a key.
 */
export function endpointHint(url: string, cause: unknown): string | undefined {
  if (!(cause instanceof HttpStatusError) || !NOT_HERE.has(cause.status)) return undefined;
  const { origin, pathname } = new URL(url);
  const path = pathname
    .split('/')
    .map((segment) => (WORD.test(segment) ? segment : '…'))
    .join('/');
  const question = ENDPOINT.test(path) ? '' : `; did you mean ${origin}${path.replace(/\/$/, '')}/mcp?`;
  return `there is no MCP endpoint at ${origin}${path}${question}`;
}
