// The official client, with its own retries switched off: they would hide how often the server itself tries.
import assert from 'node:assert/strict';
import test from 'node:test';
import OpenAI from 'openai';
import { zodFunction, zodResponseFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import { baseURL, broke, forEver, hello, hi, key, reader, state, streamEnds, toolsSaid, total } from './world.mjs';

const client = new OpenAI({ baseURL, apiKey: key, maxRetries: 0 });
const model = 'auto';
const tools = ['weather', 'time'].map((name) => ({
  type: 'function',
  function: { name, parameters: { type: 'object', properties: { city: { type: 'string' } } } },
}));
const calls = [
  { id: 'call_1', type: 'function', function: { name: 'weather', arguments: '{"city":"Paris"}' } },
  { id: 'call_2', type: 'function', function: { name: 'time', arguments: '{}' } },
];
const plain = (value) => JSON.parse(JSON.stringify(value));
// The stream helper adds what it parsed.
const called = (message) => plain(message.tool_calls).map(({ id, type, function: { name, arguments: args } }) => ({ id, type, function: { name, arguments: args } }));

test('unary', async () => {
  const { data, response } = await client.chat.completions.create({ model, messages: hi }).withResponse();
  assert.equal(data.choices[0].message.content, hello);
  assert.equal(data.choices[0].finish_reason, 'stop');
  assert.equal(data.model, 'good');
  assert.equal(data.usage.total_tokens, total);
  assert.equal(response.headers.get('x-ktms-rule'), 'all');
});

test('stream, with usage only when asked for', async () => {
  for (const stream_options of [undefined, { include_usage: false }, { include_usage: true }]) {
    const stream = await client.chat.completions.create({ model, messages: hi, stream: true, stream_options });
    const ids = new Set();
    let text = '';
    let usage;
    for await (const chunk of stream) {
      ids.add(chunk.id);
      text += chunk.choices[0]?.delta?.content ?? '';
      usage = chunk.usage ?? usage;
    }
    assert.equal(text, hello);
    assert.equal(ids.size, 1);
    assert.equal(usage?.total_tokens, stream_options?.include_usage ? total : undefined);
  }
});

test('the stream helper, which is the strictest', async () => {
  const stream = client.chat.completions.stream({ model, messages: hi, stream_options: { include_usage: true } });
  assert.equal(await stream.finalContent(), hello);
  assert.equal((await stream.totalUsage()).total_tokens, total);
  assert.equal((await stream.finalChatCompletion()).choices[0].finish_reason, 'stop');
});

test('tools, whole, streamed and answered', async () => {
  const first = await client.chat.completions.create({ model, messages: hi, tools });
  assert.equal(first.choices[0].finish_reason, 'tool_calls');
  assert.deepEqual(called(first.choices[0].message), calls);

  const stream = client.chat.completions.stream({ model, messages: hi, tools });
  const done = [];
  stream.on('tool_calls.function.arguments.done', (c) => done.push(`${c.index} ${c.name} ${c.arguments}`));
  const message = await stream.finalMessage();
  assert.deepEqual(called(message), calls);
  assert.deepEqual(done, ['0 weather {"city":"Paris"}', '1 time {}']);

  const results = [
    { role: 'tool', tool_call_id: 'call_1', content: 'sunny' },
    { role: 'tool', tool_call_id: 'call_2', content: 'noon' },
  ];
  const second = await client.chat.completions.create({ model, tools, messages: [...hi, message, ...results] });
  assert.equal(second.choices[0].message.content, toolsSaid);
});

test('the tool runner makes both turns itself', async () => {
  for (const stream of [false, true]) {
    const asked = [];
    const runner = client.chat.completions.runTools({
      model,
      stream,
      messages: hi,
      tools: [
        zodFunction({ name: 'weather', parameters: z.object({ city: z.string() }), function: ({ city }) => (asked.push(city), 'sunny') }),
        zodFunction({ name: 'time', parameters: z.object({}), function: () => (asked.push('time'), 'noon') }),
      ],
    });
    assert.equal(await runner.finalContent(), toolsSaid, `stream ${stream}`);
    assert.deepEqual(asked, ['Paris', 'time']);
  }
});

test('structured output, with the schema that zod makes', async () => {
  const answer = z.object({ city: z.string(), population: z.int().nullable() });
  const r = await client.chat.completions.parse({ model: 'good', messages: hi, response_format: zodResponseFormat(answer, 'city') });
  assert.deepEqual(plain(r.choices[0].message.parsed), { city: 'Paris', population: 2100000 });
});

test('models', async () => {
  const ids = [];
  for await (const m of client.models.list()) ids.push(m.id);
  assert.deepEqual(ids, ['dear', 'dies', 'down', 'good', 'unreachable', 'vectors']);
  assert.equal((await client.models.retrieve('good')).id, 'good');
  await assert.rejects(client.models.retrieve('nope'), OpenAI.NotFoundError);
});

test('errors are the classes that callers catch, before a stream too', async () => {
  for (const [apiKey, model, kind, code] of [
    ['ktms_wrong', 'auto', OpenAI.AuthenticationError, 'invalid_api_key'],
    [reader, 'auto', OpenAI.PermissionDeniedError, 'insufficient_scope'],
    [key, 'nope', OpenAI.NotFoundError, 'model_not_found'],
    [key, 'auto:nonsense', OpenAI.BadRequestError, 'bad_request'],
    [key, 'unreachable', OpenAI.InternalServerError, 'vendors_unavailable'],
  ]) {
    for (const stream of [false, true]) {
      const call = new OpenAI({ baseURL, apiKey, maxRetries: 0 }).chat.completions.create({ model, messages: hi, stream });
      await assert.rejects(call, (e) => e instanceof kind && e.code === code && e.message.length > 5, `${code}, stream ${stream}`);
    }
  }
});

test('a vendor that is down is asked twice for each request of the client', async () => {
  const before = (await state()).calls.down ?? 0;
  let sent = 0;
  const counted = (url, init) => (sent++, fetch(url, init));
  const patient = new OpenAI({ baseURL, apiKey: key, maxRetries: 1, fetch: counted });
  await assert.rejects(patient.chat.completions.create({ model: 'down', messages: hi }), (e) => e.status === 503 && e.code === 'vendors_unavailable');
  assert.equal(sent, 2);
  assert.equal((await state()).calls.down - before, 4);
});

test('a broken stream is an error', async () => {
  const stream = await client.chat.completions.create({ model: 'dies', messages: hi, stream: true });
  let text = '';
  await assert.rejects(
    async () => {
      for await (const chunk of stream) text += chunk.choices[0].delta.content;
    },
    (e) => e instanceof OpenAI.APIError && e.code === 'vendors_unavailable',
  );
  assert.equal(text, 'Hel');
  await assert.rejects(client.chat.completions.stream({ model: 'dies', messages: hi }).finalContent());
});

test('abort', async () => {
  const stream = await client.chat.completions.create({ model, messages: forEver, stream: true });
  let seen = 0;
  for await (const _ of stream) {
    if (++seen === 3) stream.controller.abort();
  }
  assert.ok(seen >= 3);
  await streamEnds();
});

test('embeddings, base64 by default and floats', async () => {
  for (const encoding_format of [undefined, 'base64', 'float']) {
    const { data, usage } = await client.embeddings.create({ model: 'vectors', input: ['ab', 'abcd'], encoding_format });
    const read = (v) => (typeof v === 'string' ? [...new Float32Array(new Uint8Array(Buffer.from(v, 'base64')).buffer)] : [...v]);
    assert.deepEqual(data.map((d) => [d.index, read(d.embedding)]), [[0, [2, 0, 0.5]], [1, [4, 1, 0.5]]]);
    assert.equal(usage.total_tokens, 6);
  }
});

test('a key without money is told so once', async () => {
  let sent = 0;
  const counting = (...args) => (sent++, fetch(...args));
  const poor = new OpenAI({ baseURL, apiKey: broke, maxRetries: 5, fetch: counting });
  await assert.rejects(poor.chat.completions.create({ model: 'dear', messages: hi }), (error) => {
    assert.ok(error instanceof OpenAI.RateLimitError);
    assert.equal(error.code, 'insufficient_quota');
    assert.match(error.message, /throttled:spend_key_monthly/);
    assert.ok(Number(error.headers.get('retry-after')) > 0);
    return true;
  });
  assert.equal(sent, 1);
});
