package openai

import (
	"net/http"
	"testing"

	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/vendortest"
)

func TestSuite(t *testing.T) {
	for _, vendor := range []string{vendors.OpenAI, vendors.Azure, vendors.DeepSeek, vendors.Groq, vendors.Mistral, vendors.Ollama, vendors.Local} {
		script := vendortest.OpenAI()
		if vendor == vendors.Mistral {
			script = vendortest.Mistral()
		}
		t.Run(vendor, func(t *testing.T) {
			vendortest.Run(t, vendortest.Subject{
				New: func(carrier http.RoundTripper) vendors.Vendor {
					return New(Options{Transport: carrier, Version: "test"})
				},
				Target: func(baseURL string) vendors.Target {
					return vendors.Target{Vendor: vendor, Model: "model", BaseURL: baseURL}
				},
				ModelOnly: vendor == vendors.Local, // as Ollama
				Script:    script,
				Headers:   []string{"Authorization", "Api-Key"},
			})
		})
	}
}
