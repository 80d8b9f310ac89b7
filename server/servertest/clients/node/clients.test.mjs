// The official OpenAI client for Node against the server that clients/node_test.go starts.
import assert from 'node:assert/strict';
import test from 'node:test';
import OpenAI from 'openai';

const baseURL = process.env.KTMS_URL;
const client = new OpenAI({ baseURL, apiKey: process.env.KTMS_KEY, maxRetries: 0 });
const hi = [{ role: 'user', content: 'hi' }];
const tools = ['weather', 'time'].map((name) => ({
  type: 'function',
  function: { name, parameters: { type: 'object', properties: { city: { type: 'string' } } } },
}));
const calls = [
  ['call_1', 'weather', '{"city":"Paris"}'],
  ['call_2', 'time', '{}'],
];
const flat = (toolCalls) => toolCalls.map((c) => [c.id, c.function.name, c.function.arguments]);

test('unary', async () => {
  const { data, response } = await client.chat.completions.create({ model: 'auto', messages: hi }).withResponse();
  assert.equal(data.choices[0].message.content, 'Hello from upstream.');
  assert.equal(data.model, 'good');
  assert.equal(data.usage.total_tokens, 12);
  assert.equal(response.headers.get('x-ktms-rule'), 'all');
});

test('stream, with usage only when asked for', async () => {
  for (const include_usage of [false, true]) {
    const stream = await client.chat.completions.create({ model: 'auto', messages: hi, stream: true, stream_options: { include_usage } });
    let text = '';
    let usage;
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta?.content ?? '';
      usage = chunk.usage ?? usage;
    }
    assert.equal(text, 'Hello from upstream.');
    assert.equal(usage?.total_tokens, include_usage ? 12 : undefined);
  }
});

test('the stream helper, which is the strictest', async () => {
  const stream = client.chat.completions.stream({ model: 'auto', messages: hi, stream_options: { include_usage: true } });
  assert.equal(await stream.finalContent(), 'Hello from upstream.');
  assert.equal((await stream.totalUsage()).total_tokens, 12);
});

test('tools, whole, streamed and answered', async () => {
  const first = await client.chat.completions.create({ model: 'auto', messages: hi, tools });
  assert.equal(first.choices[0].finish_reason, 'tool_calls');
  assert.deepEqual(flat(first.choices[0].message.tool_calls), calls);
  const stream = client.chat.completions.stream({ model: 'auto', messages: hi, tools });
  const message = await stream.finalMessage();
  assert.deepEqual(flat(message.tool_calls), calls);
  const second = await client.chat.completions.create({
    model: 'auto',
    tools,
    messages: [...hi, first.choices[0].message, { role: 'tool', tool_call_id: 'call_1', content: 'sunny' }, { role: 'tool', tool_call_id: 'call_2', content: 'noon' }],
  });
  assert.equal(second.choices[0].message.content, 'It is sunny, said the tool.');
});

test('structured output', async () => {
  const response_format = { type: 'json_schema', json_schema: { name: 'city', strict: true, schema: { type: 'object', properties: { city: { type: 'string' } } } } };
  const r = await client.chat.completions.parse({ model: 'good', messages: hi, response_format });
  assert.equal(JSON.parse(r.choices[0].message.content).city, 'Paris');
});

test('models', async () => {
  const ids = [];
  for await (const model of client.models.list()) ids.push(model.id);
  assert.deepEqual(ids, ['broken', 'good']);
  assert.equal((await client.models.retrieve('good')).id, 'good');
  await assert.rejects(client.models.retrieve('nope'), OpenAI.NotFoundError);
});

test('errors are the classes that callers catch', async () => {
  const call = (apiKey, model) => new OpenAI({ baseURL, apiKey, maxRetries: 0 }).chat.completions.create({ model, messages: hi });
  await assert.rejects(call('ktms_wrong', 'auto'), OpenAI.AuthenticationError);
  await assert.rejects(call(process.env.KTMS_READER, 'auto'), OpenAI.PermissionDeniedError);
  await assert.rejects(call(process.env.KTMS_KEY, 'nope'), OpenAI.NotFoundError);
  await assert.rejects(call(process.env.KTMS_KEY, 'auto:nonsense'), OpenAI.BadRequestError);
  await assert.rejects(call(process.env.KTMS_KEY, 'broken'), (e) => e instanceof OpenAI.InternalServerError && e.status === 503 && e.code === 'vendors_unavailable');
});

test('abort', async () => {
  const stream = await client.chat.completions.create({ model: 'auto', messages: [{ role: 'user', content: 'for ever' }], stream: true });
  let seen = 0;
  for await (const _ of stream) {
    if (++seen === 3) stream.controller.abort();
  }
  assert.ok(seen >= 3);
});
