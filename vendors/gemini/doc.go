// Package gemini speaks Google's generateContent API, and its batchEmbedContents for vectors.
package gemini
