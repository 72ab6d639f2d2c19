import { z } from 'zod';
import { components, refusalAnswer } from './answers.ts';
import { ADMIN_PATH, ADMIN_ROUTES, type AdminRoute } from './routes.ts';

/** HTTP statuses of refusals, with what they mean for every operation. */
const REFUSALS: Readonly<Record<string, string>> = {
  400: 'The request is malformed; the message names the part.',
  401: 'No key of an operator.',
  403: 'The Host or the Origin is not allowed.',
  404: 'There is no such thing; the message names those that exist.',
  500: 'The gateway failed to answer; its log has the reason.',
};

const BODY_REFUSALS: Readonly<Record<string, string>> = {
  413: 'The body is larger than an operator may send.',
  415: 'The body is not sent as application/json.',
};

const LOG_REFUSALS: Readonly<Record<string, string | undefined>> = {
  401: REFUSALS[401],
  403: REFUSALS[403],
  500: REFUSALS[500],
  503: 'Too many operators follow the log.',
};

function schemaOf(schema: z.ZodType): unknown {
  const { $schema: _dialect, ...rest } = z.toJSONSchema(schema, { io: 'input' });
  return rest;
}

/** Returns the reference to a schema that has a name in the document. @throws {RangeError} if it has none. */
function reference(schema: z.ZodType): { readonly $ref: string } {
  const name = components.get(schema)?.id;
  if (name === undefined) throw new RangeError('the schema of an answer has no name');
  return { $ref: `#/components/schemas/${name}` };
}

function json(schema: unknown): object {
  return { 'application/json': { schema } };
}

function operation({ operationId, summary, path, query, body, answer }: AdminRoute): object {
  const inPath = path.includes('{id}') ? [{ name: 'id', in: 'path', required: true, schema: { type: 'string' } }] : [];
  const inQuery = Object.entries(query.shape).map(([name, schema]) => ({
    name,
    in: 'query',
    required: false,
    schema: schema instanceof z.ZodType ? schemaOf(schema) : {},
  }));
  const parameters = [...inPath, ...inQuery];
  const hasBody = Object.keys(body.shape).length > 0;
  return {
    operationId,
    summary,
    ...(parameters.length === 0 ? {} : { parameters }),
    ...(hasBody ? { requestBody: { required: false, content: json(schemaOf(body)) } } : {}),
    responses: {
      200: { description: summary, content: json(reference(answer)) },
      ...refusalsOf(hasBody ? { ...REFUSALS, ...BODY_REFUSALS } : REFUSALS),
    },
  };
}

function refusalsOf(descriptions: Readonly<Record<string, string | undefined>>): object {
  const content = json(reference(refusalAnswer));
  return Object.fromEntries(
    Object.entries(descriptions).map(([status, description]) => [status, { description, content }]),
  );
}

/** Returns the schemas of answers by name, with references among them. */
function answerSchemas(): Record<string, unknown> {
  const { schemas } = z.toJSONSchema(components, { uri: (id) => `#/components/schemas/${id}`, io: 'output' });
  return Object.fromEntries(
    Object.entries(schemas).map(([id, { $schema: _dialect, $id: _id, ...schema }]) => [id, schema]),
  );
}

/** Returns the OpenAPI 3.1 document of the admin API. It is the same for every gateway of this version. */
export function openApiDocument(version: string): object {
  const paths: Record<string, Record<string, object>> = {
    '/log': {
      get: {
        operationId: 'readLog',
        summary: 'The latest lines of the log as JSON lines; with `follow`, further lines until the caller goes.',
        parameters: [{ name: 'follow', in: 'query', required: false, schema: { type: 'boolean', default: false } }],
        responses: {
          200: {
            description: 'One JSON object a line.',
            content: { 'application/x-ndjson': { schema: { type: 'string' } } },
          },
          ...refusalsOf(LOG_REFUSALS),
        },
      },
    },
  };
  for (const route of ADMIN_ROUTES) {
    paths[route.path] = { ...paths[route.path], [route.method]: operation(route) };
  }
  return {
    openapi: '3.1.1',
    info: { title: 'Linkspan admin API', version, summary: 'Shows and changes a running gateway.' },
    servers: [{ url: ADMIN_PATH }],
    security: [{ operatorKey: [] }],
    paths,
    components: {
      securitySchemes: {
        operatorKey: {
          type: 'http',
          scheme: 'bearer',
          description:
            'A key of `gateway.operatorKeys`, or the key that the gateway wrote to `operator.json` in its state directory.',
        },
      },
      schemas: answerSchemas(),
    },
  };
}
