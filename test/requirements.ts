/** What the protocol asks of a gateway, in our own words: one number each, and where it is written. */
import type { Feature } from './matrix/words.ts';

export interface Requirement {
  /** `T` transport, `L` lifecycle, `M` merging, `X` between the eras. */
  readonly id: string;
  readonly says: string;
  readonly link: string;
  /** Proven by these features of the interop matrix (`node test/matrix/run.ts`), which has no tests with names. */
  readonly matrix?: readonly Feature[];
}

const SITE = 'https://modelcontextprotocol.io';
const NEW = `${SITE}/specification/2026-07-28`;
const OLD = `${SITE}/specification/2025-11-25`;

const HTTP = `${NEW}/basic/transports/streamable-http`;
const STDIO = `${NEW}/basic/transports/stdio`;
const BASIC = `${NEW}/basic`;
const VERSIONS = `${NEW}/basic/versioning`;
const CANCELLATION = `${NEW}/basic/patterns/cancellation`;
const ROUNDS = `${NEW}/basic/patterns/mrtr`;
const LISTENING = `${NEW}/basic/patterns/subscriptions`;
const PROGRESS = `${NEW}/basic/patterns/progress`;
const TOOLS = `${NEW}/server/tools`;
const RESOURCES = `${NEW}/server/resources`;
const CACHING = `${NEW}/server/utilities/caching`;
const PAGES = `${NEW}/server/utilities/pagination`;
const COMPLETION = `${NEW}/server/utilities/completion`;
const LOGGING = `${NEW}/server/utilities/logging`;
const OLD_HTTP = `${OLD}/basic/transports`;
const LIFECYCLE = `${OLD}/basic/lifecycle`;
const ELICITATION = `${OLD}/client/elicitation`;
const OLD_TASKS = `${OLD}/basic/utilities/tasks`;
const TASKS = `${SITE}/extensions/tasks/overview`;
const APPS = `${SITE}/extensions/apps/overview`;

type Row = readonly [id: string, says: string, link: string, matrix?: readonly Feature[]];

const TRANSPORT: readonly Row[] = [
  ['T-001', 'A page of another site gets 403; who names no Origin is let in', HTTP],
  ['T-002', 'The body decides the era, and one path serves both', VERSIONS],
  ['T-003', 'A modern request without MCP-Protocol-Version is a mismatch', HTTP],
  ['T-004', 'So is a header that names another revision than the body', HTTP],
  ['T-005', 'A revision nobody speaks is refused with those there are', VERSIONS],
  ['T-006', 'Those are of server/discover, and modern ones alone', VERSIONS],
  ['T-007', 'An envelope without what it needs is invalid', `${BASIC}#meta`],
  ['T-008', 'A client need not say who it is', BASIC],
  ['T-009', 'Mcp-Method says what the body says, letter by letter', HTTP],
  ['T-010', 'Mcp-Name says what the body names, be it in base64', HTTP],
  ['T-011', 'Broken base64 is refused; what only looks like it is plain text', HTTP],
  ['T-012', 'Mcp-Param-… say what the arguments say, by the schema we publish', HTTP],
  ['T-013', 'What this era or this server does not have is 404 and −32601', HTTP],
  ['T-014', 'A missing capability is 400 and says which, as an object', BASIC],
  ['T-015', 'A modern notification is accepted: 202, no body', HTTP],
  ['T-016', 'Responses and arrays are no modern requests', HTTP],
  ['T-017', 'There are no session ids and no event ids in the modern era', HTTP],
  ['T-018', 'A modern request is answered with JSON or with events', HTTP],
  ['T-019', 'No request is ever written on a modern stream', HTTP],
  ['T-020', 'A modern client that hangs up has cancelled', CANCELLATION],
  ['T-021', 'Nothing follows the answer', ROUNDS],
  ['T-022', 'Events pass through proxies, and silence is filled with comments', HTTP],
  ['T-023', 'Legacy responses and notifications are 202, what is unacceptable 4xx', OLD_HTTP],
  ['T-024', 'GET is a stream of events for whoever takes them', OLD_HTTP],
  ['T-025', 'No answer comes on a GET stream that does not resume its own', OLD_HTTP],
  ['T-026', 'Each message goes to one stream of a session', OLD_HTTP],
  ['T-027', 'A legacy client that is disconnected has not cancelled', OLD_HTTP],
  ['T-028', 'Event ids are unique in a session, and replay their own stream', OLD_HTTP],
  ['T-029', 'Since 2025-11-25 a stream begins with an id to come back by', OLD_HTTP],
  ['T-030', 'Whatever opened a stream, a GET resumes it', OLD_HTTP],
  ['T-031', 'Without a session id 400, with an ended one 404', OLD_HTTP],
  ['T-032', 'An unsupported revision in the header is 400; none is the session’s', OLD_HTTP],
  ['T-033', '2025-03-26 has batches, though not of initialize', `${SITE}/specification/2025-03-26/basic`],
  ['T-034', 'No other revision has', `${SITE}/specification/2025-06-18/changelog`],
  ['T-035', '2024-11-05 is served over GET /sse', `${SITE}/specification/2024-11-05/basic/transports`],
  ['T-036', 'An upstream that lost our session is initialized anew', OLD_HTTP],
  ['T-037', 'An upstream’s stream that broke is resumed when it said', OLD_HTTP],
  ['T-038', 'An upstream gets our Accept, revision and its session id', OLD_HTTP],
  ['T-039', 'A modern upstream gets headers made of the body', HTTP],
  ['T-040', 'Over stdio a line is a message, and stray output does no harm', STDIO],
  ['T-041', 'A program is ended by closing stdin, then SIGTERM, then SIGKILL', STDIO],
  ['T-042', 'A modern program gets no responses, whatever it asks', STDIO],
];

const LIFE: readonly Row[] = [
  ['L-001', 'server/discover tells revisions, capabilities and how long that holds', `${NEW}/server/discover`],
  ['L-002', 'initialize is answered in the revision asked for, else our latest legacy one', LIFECYCLE],
  ['L-003', 'Nothing is used that was not negotiated', `${LIFECYCLE}#operation`],
  ['L-004', 'A client that is not initialized is asked nothing', LIFECYCLE],
  ['L-005', 'An upstream hears notifications/initialized before anything else', LIFECYCLE],
  ['L-006', 'initialize is never cancelled', `${OLD}/basic/utilities/cancellation`],
  ['L-007', 'A program that answers nothing, anything or ends is of the older era', STDIO],
  ['L-008', 'A remote one is judged by the body of its 400', `${HTTP}#backward-compatibility`],
  ['L-009', 'Neither 401, 403, 5xx nor silence of a remote one tells its era', VERSIONS],
  ['L-010', 'An upstream that names a revision we share is asked once more', VERSIONS],
  ['L-011', 'The verdict is kept, and judged afresh after a failure and a while', VERSIONS],
  ['L-012', 'Who discovers no modern revision is of the older era', VERSIONS],
  ['L-013', 'ping is answered in both directions', `${OLD}/basic/utilities/ping`],
  ['L-014', 'Ids are unique where they must be, and never null', BASIC],
  ['L-015', 'Every wait for an upstream ends, progress or not', CANCELLATION],
  ['L-016', 'A program that crashed is started again, and listened to again', STDIO],
  ['L-017', 'In the modern era nothing is taken from an earlier request', `${BASIC}#statelessness`],
  ['L-018', 'Who is refused for its revision learns which there are', VERSIONS],
];

const MERGE: readonly Row[] = [
  ['M-001', 'Tools of one name from two upstreams can both be called', `${TOOLS}#tool-names`],
  ['M-002', 'Published names are of a few safe characters and not long', `${TOOLS}#tool-names`],
  ['M-003', 'Lists keep their order', TOOLS],
  ['M-004', 'A modern list does not depend on the connection or on earlier calls', TOOLS],
  ['M-005', 'What is declared can be listed, what is not is −32601', TOOLS],
  ['M-006', 'An unknown tool or prompt is −32602', TOOLS],
  ['M-007', 'An unknown resource is −32602, to legacy clients −32002', RESOURCES],
  ['M-008', 'A bad cursor is −32602', PAGES],
  ['M-009', 'Upstreams’ cursors are handed back as they came, and paging ends', PAGES],
  ['M-010', 'What may be cached says for how long and for whom', CACHING],
  ['M-011', 'All pages of a list say the same of that', CACHING],
  ['M-012', 'A merged list is as short-lived and private as its parts', CACHING],
  ['M-013', 'What is private to one is never served to another', CACHING],
  ['M-014', 'No answer is served for another question, nor a retry from a cache', CACHING],
  ['M-015', 'News of a change takes effect at once', CACHING],
  ['M-016', 'URIs on the way back lead to where they came from', `${TOOLS}#resource-links`],
  ['M-017', 'Completion reaches the owner, under its own names', COMPLETION],
  ['M-018', 'Its values pass unchanged', COMPLETION],
  ['M-019', 'Progress carries the client’s own token, type and all', PROGRESS],
  ['M-020', 'Progress only grows, and ends with the answer', PROGRESS],
  ['M-021', 'Task ids are strings nobody guesses, and fit into a header', TASKS],
  ['M-022', 'User interfaces are found under ui:// and can be read', APPS],
  ['M-023', 'An upstream’s own URI is taken where only one has it', RESOURCES],
  ['M-024', 'Over HTTP a tool with a wrong x-mcp-header is left out, and the log says so', HTTP],
  ['M-025', 'Content is not altered', RESOURCES],
  ['M-026', 'Every modern result says that it is ours', BASIC],
  ['M-027', 'Reserved keys of _meta are not invented, unknown ones kept', `${BASIC}#meta`],
  ['M-028', 'An upstream that is down takes away only what is its own', TOOLS],
  ['M-029', 'A result of a type nobody knows is no result', `${BASIC}#resulttype`],
  ['M-030', 'A legacy result without a type is complete', `${BASIC}#resulttype`],
];

const BRIDGE: readonly Row[] = [
  ['X-001', 'A legacy result is complete and says how long it holds', CACHING],
  ['X-002', 'A legacy client is told nothing of that', OLD],
  ['X-003', 'A modern upstream’s questions reach a legacy client on its call’s stream', OLD_HTTP],
  ['X-004', 'A retry has a new id, the same parameters and the state as it came', ROUNDS],
  ['X-005', 'Answers belong to one round of one request', ROUNDS],
  ['X-006', 'A round without questions is paced, and rounds are counted', ROUNDS],
  ['X-007', 'Nobody is asked what they did not say they could answer', ELICITATION],
  ['X-008', 'An upstream’s −32021 is told in words the client has', BASIC],
  ['X-009', 'A legacy client that refuses ends the call; a form it refuses is cancelled', `${NEW}/client/sampling`],
  ['X-010', 'A legacy upstream’s questions make an answer of input_required', ROUNDS],
  ['X-011', 'input_required holds questions or a state', ROUNDS],
  ['X-012', 'Only calls, prompts and reads are answered with it', ROUNDS],
  ['X-013', 'A modern client is asked only what its request declared', ROUNDS],
  ['X-014', 'A state that is not for this very request is refused', ROUNDS],
  ['X-015', 'A retry finds its call whatever process it reaches', ROUNDS],
  ['X-016', 'A question is answered once, however often the retry comes', ROUNDS],
  ['X-017', 'What a retry left out is asked again, what nobody asked ignored', ROUNDS],
  ['X-018', 'What came of a call meanwhile is had by the retry', ROUNDS],
  ['X-019', 'A call nobody comes back for is ended', ROUNDS],
  ['X-020', 'Who hangs up on a retry cancels the call', CANCELLATION],
  ['X-021', 'A question that belongs to no one call is shown to nobody', ROUNDS],
  ['X-022', 'A question reaches only the client whose call it is about', ROUNDS],
  ['X-023', 'A legacy connection declares what its clients declared', LIFECYCLE],
  ['X-024', 'An upstream that waits for an answer hears of progress', PROGRESS],
  ['X-025', 'Codes of the older era are not said in the modern one', BASIC],
  ['X-026', 'A page to be opened first is asked for, and the call made again', ELICITATION],
  ['X-027', 'A page shown to a 2025-11-25 client has an elicitationId', ELICITATION],
  ['X-028', 'That a page is done is told to whoever was sent there', ELICITATION],
  ['X-029', 'Modern requests hear of log messages only if they want them', LOGGING, ['log']],
  ['X-030', 'A session’s log level goes with each of its modern requests', LOGGING],
  ['X-031', 'A log level nobody knows is refused', LOGGING],
  ['X-032', 'A listening client is told first what it will hear', LISTENING],
  ['X-033', 'And then nothing else', LISTENING],
  ['X-034', 'Listening subscribes at legacy upstreams, as long as anybody listens', LISTENING],
  ['X-035', 'Subscribing listens at modern upstreams, and loses nothing', LISTENING, ['subscribe/update']],
  ['X-036', 'A listening client gets its answer when we stop', LISTENING],
  ['X-037', 'A cancel reaches the upstream, and late answers nobody', `${OLD}/basic/utilities/cancellation`],
  ['X-038', 'Calls that became tasks are cancelled as tasks', OLD_TASKS],
  ['X-039', 'Nobody gets a task who does not know tasks', TASKS],
  ['X-040', 'Tasks of 2025-11-25 are not spoken of in the modern era', TASKS],
  ['X-041', 'A tool’s error completes a modern task and fails a legacy one', OLD_TASKS],
  ['X-042', 'A tool that insists on tasks works for clients without', OLD_TASKS],
  [
    'X-043',
    'Structured content that is no object is wrapped for legacy clients',
    `${SITE}/seps/2106-json-schema-2020-12`,
  ],
  ['X-044', 'What an older client cannot read is said in text', OLD],
  ['X-045', 'A call whose stream broke is not made again', HTTP],
  ['X-046', 'One upstream’s state never reaches another', ROUNDS],
  ['X-047', 'Headers refused by an upstream are made anew, once', HTTP],
  [
    'X-048',
    'Every pair of revisions gets along',
    VERSIONS,
    ['list', 'call', 'tool error', 'progress', 'cancel', 'elicitation form', 'log', 'subscribe/update'],
  ],
];

export const REQUIREMENTS: readonly Requirement[] = [...TRANSPORT, ...LIFE, ...MERGE, ...BRIDGE].map(
  ([id, says, link, matrix]) => ({ id, says, link, ...(matrix === undefined ? {} : { matrix }) }),
);

/**
 * Those that no test proves, and why. A test may name one all the same, where it shows what happens instead. It should be empty.
 */
export const PENDING: Readonly<Record<string, string>> = {};
