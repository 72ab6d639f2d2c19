import type { HandleKind } from './handle-kind.ts';
import { SESSION, GET_STREAM, SSE_SESSION, EVENT_ID } from './session-kinds.ts';
import { REQUEST_ID, MODERN_REQUEST_ID, QUESTION_ID, QUESTION_TOKEN, PROGRESS_TOKEN } from './request-kinds.ts';
import { PARKED, RELAYED, PAGES, ELICITATION_ID } from './state-kinds.ts';
import { TASK, MODERN_TASK, CURSOR, SUBSCRIPTION, LISTEN, IDEMPOTENCY_KEY } from './lasting-kinds.ts';

/** Everything that a client has from the gateway, or has given to it, and may name later. */
export const HANDLE_KINDS: readonly HandleKind[] = [
  SESSION,
  GET_STREAM,
  SSE_SESSION,
  EVENT_ID,
  REQUEST_ID,
  MODERN_REQUEST_ID,
  QUESTION_ID,
  QUESTION_TOKEN,
  PROGRESS_TOKEN,
  PARKED,
  RELAYED,
  PAGES,
  ELICITATION_ID,
  TASK,
  MODERN_TASK,
  CURSOR,
  SUBSCRIPTION,
  LISTEN,
  IDEMPOTENCY_KEY,
];
