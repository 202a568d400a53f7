// Walks through the web application in Firefox, as a person does who was invited: firefox_walk.mjs FIREFOX SERVER LINK PASSWORD VIDEO.
// Signs in, makes a key, sends the video, follows it to its end, opens its scene, signs out. Prints one JSON object: `key`, `scene`
// (state of the viewer, what it says, whether Firefox offers WebGL 2 here, what is said of the camera path) and `complaints`, errors
// that Firefox noted. Exits with 77 and says so if the package is not installed.

import { createRequire } from 'node:module';
import { join } from 'node:path';

const [executablePath, server, link, password, video] = process.argv.slice(2);
const require = createRequire(process.env.LIBRECONSTRUCT_NODE_MODULES
    ? join(process.env.LIBRECONSTRUCT_NODE_MODULES, 'x.js') : import.meta.url);
let puppeteer;
try {
    puppeteer = require('puppeteer-core');
} catch (error) {
    if (!/Cannot find/.test(error.message)) throw error;
    console.log('the npm package puppeteer-core');
    process.exit(77);
}

const PATIENCE = 240_000;
const browser = await puppeteer.launch({
    // Firefox offers WebGL 2 only where it has a screen.
    browser: 'firefox', executablePath, headless: !process.env.DISPLAY, timeout: PATIENCE, protocolTimeout: PATIENCE,
    extraPrefsFirefox: { 'webgl.force-enabled': true },
});
try {
    const page = await browser.newPage();
    page.setDefaultTimeout(PATIENCE);
    const complaints = [];
    page.on('pageerror', (error) => complaints.push(String(error)));
    page.on('console', (message) => { if (message.type() === 'error') complaints.push(message.text()); });

    const at = (path) => page.waitForFunction(
        (wanted) => location.pathname === wanted && document.readyState === 'complete', {}, path);
    const press = async (words) => {
        const find = (text) => [...document.querySelectorAll('button, a')].find((e) => e.textContent.trim() === text && !e.disabled);
        await page.waitForFunction(find, {}, words);
        const element = await page.evaluateHandle(find, words);
        await element.click();
    };
    const fill = async (selector, text) => {
        await page.waitForSelector(selector);
        await page.type(selector, text);
    };

    await page.goto(server + link);
    await fill('#password', password);
    await fill('#again', password);
    await press('Set the password and sign in');
    await at('/scenes');
    if (await page.evaluate(() => document.cookie) !== '') throw new Error('scripts see the cookie');

    await press('Profile');
    await at('/profile');
    await fill('#key-name', 'laptop');
    await press('Make a key');
    await page.waitForSelector('#new-key');
    const key = await page.$eval('#new-key', (element) => element.textContent);

    await press('New');
    await at('/scenes/new');
    await page.waitForFunction(() => document.querySelector('#new-scene')?.hidden === false);
    const field = await page.$('input[type=file]');
    await field.uploadFile(video);
    await page.waitForSelector('[data-file]');
    await page.$eval('details', (element) => { element.open = true; });
    for (const [name, value] of Object.entries({ training_num_steps: 30, training_max_num_gaussians: 1000 })) {
        await page.$eval(`#${name}`, (element, number) => { element.value = number; }, value);
    }
    await page.waitForFunction(() => !document.querySelector('#start').disabled);
    await press('Send and reconstruct');
    await at('/scenes');
    // The page follows what happens by itself, and asks for itself again when the job has ended.
    await page.waitForSelector('.card:not([data-live])');
    await page.$eval('.card:not([data-live]) h2 a', (link) => link.click());
    await page.waitForFunction(() => ['ready', 'failed'].includes(document.querySelector('.viewer')?.dataset.state));
    const scene = await page.evaluate(() => ({
        state: document.querySelector('.viewer').dataset.state,
        status: document.querySelector('.viewer .status').textContent,
        preview: document.querySelector('.viewer img').naturalWidth,
        webgl2: !!document.createElement('canvas').getContext('webgl2'),
        words: document.querySelector('main').innerText,
    }));
    if (scene.state === 'ready') {
        await press('Camera path');
        await page.waitForFunction(() => document.querySelector('.viewer .spoken').textContent !== '');
        scene.path = await page.$eval('.viewer .spoken', (element) => element.textContent);
    }
    await press('Sign out');
    await at('/sign-in');
    console.log(JSON.stringify({ version: await browser.version(), key, scene, complaints }));
} finally {
    await browser.close();
}
