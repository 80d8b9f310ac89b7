package bedrock

import (
	"net/http"
	"testing"

	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/vendortest"
)

const testRegion = "eu-central-1"

// models stand for the kinds that differ in what they take.
var models = map[string]string{
	"Claude":        "anthropic.claude-opus-4-6-v1",
	"newest Claude": "eu.anthropic.claude-opus-5-5-v1:0",
	"old Claude":    "anthropic.claude-3-5-sonnet-20240620-v1:0",
	"Nova":          "arn:aws:bedrock:us-east-1::foundation-model/amazon.nova-pro-v1:0",
	"another":       "meta.llama4-maverick-17b-instruct-v1:0",
}

func TestSuite(t *testing.T) {
	for name, model := range models {
		t.Run(name, func(t *testing.T) {
			vendortest.Run(t, vendortest.Subject{
				New: func(carrier http.RoundTripper) vendors.Vendor {
					return New(Options{Transport: carrier, Version: "test"})
				},
				Key: func(secret string) string {
					return "AKIACANARYACCESSKEY:" + secret + ":" + testRegion + ":session-token-abcdef"
				},
				Target: func(baseURL string) vendors.Target {
					return vendors.Target{Vendor: vendors.Bedrock, Model: model, BaseURL: baseURL}
				},
				ModelOnly: name != "Claude",
				Script:    vendortest.Bedrock(testRegion),
				Headers:   []string{"Authorization", "X-Amz-Date", "X-Amz-Security-Token"},
			})
		})
	}
}
