import type { Series } from '../suite.ts';
import { COLD_START } from './cold-start.ts';
import { HANGING } from './hanging.ts';
import { CONNECTIONS_SERIES, SESSIONS } from './load-points.ts';
import { PROCESSES } from './processes.ts';
import { SCRAPE } from './scrape.ts';
import { SIZING } from './sizing.ts';
import { STREAMING } from './streaming.ts';
import { TOOLS_SERIES } from './tools.ts';
import { UPSTREAMS } from './upstreams.ts';

/** The series that measure the growth of cost, each on the defaults as shipped. */
export const GROWTH: readonly Series[] = [
  SESSIONS,
  CONNECTIONS_SERIES,
  UPSTREAMS,
  TOOLS_SERIES,
  STREAMING,
  PROCESSES,
  COLD_START,
  HANGING,
  SCRAPE,
  SIZING,
];
