// What the Go test that starts these files tells them, and what the scripted vendor says.
export const baseURL = process.env.KTMS_URL;
export const key = process.env.KTMS_KEY;
export const reader = process.env.KTMS_READER; // a key without the scope generate
export const broke = process.env.KTMS_BROKE; // a key without money
export const hello = 'Hello from upstream.';
export const toolsSaid = 'The tools said: sunny, noon';
export const total = 12;
export const hi = [{ role: 'user', content: 'hi' }];
export const forEver = [{ role: 'user', content: 'for ever' }];

// state asks the scripted vendor how often each model was called and how many endless streams are open.
export async function state() {
  return (await fetch(`${process.env.KTMS_UPSTREAM}/state`)).json();
}

// streamEnds waits until the vendor has noticed that its caller left.
export async function streamEnds() {
  for (const deadline = Date.now() + 5000; Date.now() < deadline; ) {
    if ((await state()).open === 0) return;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error('the vendor still streams');
}
