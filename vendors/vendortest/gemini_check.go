package vendortest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// geminiCheck reads a request as strictly as the vendor's own validation, from the reference alone.
func geminiCheck(c *Call) string {
	g := &geminiReader{}
	address := geminiPath.FindStringSubmatch(c.Path)
	switch {
	case c.Method != http.MethodPost, address == nil:
		return fmt.Sprintf("no such method: %s %s", c.Method, c.Path)
	case c.Header.Get("X-Goog-Api-Key") == "", c.Header.Get("Authorization") != "":
		return "the key is not in x-goog-api-key"
	case (c.Query == "alt=sse") != (address[2] == "streamGenerateContent"), c.Query != "" && c.Query != "alt=sse":
		return "query " + c.Query
	}
	if version := geminiVersion.FindStringSubmatch(address[1]); version != nil {
		g.version, _ = strconv.ParseFloat(version[1], 64)
	}
	d := json.NewDecoder(bytes.NewReader(c.Body))
	d.UseNumber()
	var body any
	if err := d.Decode(&body); err != nil {
		return err.Error()
	}
	if _, err := d.Token(); err != io.EOF {
		return "something follows the body"
	}
	if address[2] == "batchEmbedContents" {
		g.embed(body, address[1])
	} else {
		g.request(body)
	}
	return g.wrong
}

var (
	geminiPath    = regexp.MustCompile(`^/v1beta/models/([^/:]+):(generateContent|streamGenerateContent|batchEmbedContents)$`)
	geminiVersion = regexp.MustCompile(`^gemini-([0-9]+(?:\.[0-9]+)?)`)
	geminiName    = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.:-]{0,127}$`)
	geminiMIME    = regexp.MustCompile(`^(image/(png|jpeg|webp|heic|heif|gif)|audio/(wav|mp3|mpeg|aiff|aac|ogg|flac|m4a|webm)|video/[a-z0-9]+|application/pdf|application/json|text/[a-z]+)$`)
)

// geminiReader keeps the first thing that is wrong.
type geminiReader struct {
	version   float64 // 0 is unknown
	wrong     string
	functions map[string]bool
	search    bool
	mode      string
	both      bool // includeServerSideToolInvocations
	mime      string
}

func (g *geminiReader) fail(path, text string) {
	if g.wrong == "" {
		g.wrong = path + ": " + text
	}
}

// object reads the members of an object. A reader of nil takes anything; names in required have to be there.
func (g *geminiReader) object(path string, v any, members map[string]func(string, any), required ...string) map[string]any {
	o, ok := v.(map[string]any)
	if !ok {
		g.fail(path, "is not an object")
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(o)) {
		read, known := members[name]
		if !known {
			g.fail(path, "Unknown name "+name)
		} else if read != nil {
			read(path+"."+name, o[name])
		}
	}
	for _, name := range required {
		if _, has := o[name]; !has {
			g.fail(path, name+" is missing")
		}
	}
	return o
}

func (g *geminiReader) list(path string, v any, each func(string, any)) []any {
	items, ok := v.([]any)
	if !ok || len(items) == 0 {
		g.fail(path, "is no list, or empty")
	}
	for i, item := range items {
		each(fmt.Sprintf("%s[%d]", path, i), item)
	}
	return items
}

func (g *geminiReader) text(path string, v any) {
	if s, ok := v.(string); !ok || s == "" {
		g.fail(path, "is no text, or empty")
	}
}

func (g *geminiReader) flag(path string, v any) {
	if _, ok := v.(bool); !ok {
		g.fail(path, "is no boolean")
	}
}

func (g *geminiReader) enum(values ...string) func(string, any) {
	return func(path string, v any) {
		if s, ok := v.(string); !ok || !slices.Contains(values, s) {
			g.fail(path, fmt.Sprintf("invalid value %v", v))
		}
	}
}

func (g *geminiReader) number(low, high float64, whole bool) func(string, any) {
	return func(path string, v any) {
		n, ok := v.(json.Number)
		f, err := n.Float64()
		if _, bad := strconv.ParseInt(n.String(), 10, 64); !ok || err != nil || f < low || f > high || whole && bad != nil {
			g.fail(path, fmt.Sprintf("invalid value %v", v))
		}
	}
}

func (g *geminiReader) request(v any) {
	body := g.object("", v, map[string]func(string, any){
		"systemInstruction": func(path string, v any) {
			g.object(path, v, map[string]func(string, any){"parts": func(path string, v any) {
				g.list(path, v, func(path string, v any) { g.object(path, v, map[string]func(string, any){"text": g.text}, "text") })
			}}, "parts")
		},
		"contents": nil, "tools": g.tools, "toolConfig": nil, "generationConfig": g.config,
		"serviceTier": g.enum("standard", "flex", "priority"),
	}, "contents")
	if config, has := body["toolConfig"]; has {
		g.toolConfig(".toolConfig", config)
	}
	g.contents(".contents", body["contents"])
	functions := len(g.functions) > 0
	switch {
	case g.version < 3 && (functions || g.search) && g.mime != "":
		g.fail("", "Function calling with a response mime type is unsupported")
	case g.version < 3 && functions && g.search:
		g.fail("", "Tool use with function calling is unsupported")
	case functions && g.search && (!g.both || g.mode == "AUTO"):
		g.fail("", "Please enable tool_config.include_server_side_tool_invocations to use Built-in tools with Function calling.")
	}
}

// contents reads the turns, and holds each call to its response.
func (g *geminiReader) contents(path string, v any) {
	var open []map[string]any // the calls of the turn before
	first := true
	g.list(path, v, func(path string, v any) {
		var calls, responses []map[string]any
		turn := g.object(path, v, map[string]func(string, any){"role": g.enum("user", "model"), "parts": func(path string, v any) {
			g.list(path, v, func(path string, v any) {
				p := g.part(path, v)
				if call, ok := p["functionCall"].(map[string]any); ok {
					if len(calls) == 0 && g.version >= 3 && p["thoughtSignature"] == nil {
						g.fail(path, "Function call is missing a thought_signature")
					}
					calls = append(calls, call)
				}
				if response, ok := p["functionResponse"].(map[string]any); ok {
					responses = append(responses, response)
				}
			})
		}}, "role", "parts")
		model := turn["role"] == "model"
		switch {
		case first && model:
			g.fail(path, "the first turn is the model's")
		case model && responses != nil, !model && calls != nil:
			g.fail(path, "a call or a response of the wrong role")
		case len(open) != len(responses):
			g.fail(path, "the number of function response parts has to be equal to the number of function call parts of the function call turn")
		}
		for i, r := range responses {
			if i < len(open) && (open[i]["name"] != r["name"] || open[i]["id"] != r["id"]) {
				g.fail(path, "the response is of another call")
			}
		}
		open, first = calls, false
	})
	if open != nil {
		g.fail(path, "calls without responses")
	}
}

func (g *geminiReader) part(path string, v any) map[string]any {
	p := g.object(path, v, map[string]func(string, any){
		"text": g.text, "thought": g.flag, "thoughtSignature": g.text,
		"inlineData": func(path string, v any) {
			g.object(path, v, map[string]func(string, any){"mimeType": g.mediaType, "data": func(path string, v any) {
				s, _ := v.(string)
				if data, err := base64.StdEncoding.DecodeString(s); err != nil || len(data) == 0 {
					g.fail(path, "is not base64, or empty")
				}
			}}, "mimeType", "data")
		},
		"fileData": func(path string, v any) {
			g.object(path, v, map[string]func(string, any){"mimeType": g.mediaType, "fileUri": func(path string, v any) {
				if g.text(path, v); strings.HasPrefix(fmt.Sprint(v), "data:") {
					g.fail(path, "cannot be fetched")
				}
			}}, "fileUri")
		},
		"functionCall": func(path string, v any) {
			g.object(path, v, map[string]func(string, any){"id": g.text, "name": g.name, "args": g.anyObject}, "name")
		},
		"functionResponse": func(path string, v any) {
			g.object(path, v, map[string]func(string, any){"id": g.text, "name": g.name, "response": g.anyObject}, "name", "response")
		},
		"toolCall": g.anyObject, "toolResponse": g.anyObject,
	})
	kinds := 0
	for name := range p {
		if name != "thought" && name != "thoughtSignature" {
			kinds++
		}
	}
	if kinds != 1 {
		g.fail(path, "a part has exactly one kind of data")
	}
	return p
}

func (g *geminiReader) mediaType(path string, v any) {
	if s, ok := v.(string); !ok || !geminiMIME.MatchString(s) {
		g.fail(path, fmt.Sprintf("Unsupported MIME type: %v", v))
	}
}

func (g *geminiReader) anyObject(path string, v any) {
	if _, ok := v.(map[string]any); !ok {
		g.fail(path, "is not an object")
	}
}

func (g *geminiReader) name(path string, v any) {
	if s, ok := v.(string); !ok || !geminiName.MatchString(s) {
		g.fail(path, fmt.Sprintf("Invalid function name %v", v))
	}
}

func (g *geminiReader) tools(path string, v any) {
	g.functions = map[string]bool{}
	g.list(path, v, func(path string, v any) {
		g.object(path, v, map[string]func(string, any){
			"functionDeclarations": func(path string, v any) {
				g.list(path, v, func(path string, v any) {
					f := g.object(path, v, map[string]func(string, any){"name": g.name, "description": g.text, "parametersJsonSchema": g.schema}, "name")
					name := fmt.Sprint(f["name"])
					if g.functions[name] {
						g.fail(path, "Duplicate function declaration found: "+name)
					}
					g.functions[name] = true
					if parameters, has := f["parametersJsonSchema"].(map[string]any); has && parameters["type"] != nil && parameters["type"] != "object" {
						g.fail(path, "parameters are of an object")
					}
				})
			},
			"googleSearch": func(path string, v any) { g.search = true; g.object(path, v, nil) },
		})
	})
}

func (g *geminiReader) toolConfig(path string, v any) {
	if len(g.functions) == 0 {
		g.fail(path, "Function calling config is set without function_declarations.")
	}
	g.object(path, v, map[string]func(string, any){
		"includeServerSideToolInvocations": func(path string, v any) { g.flag(path, v); g.both = v == true },
		"functionCallingConfig": func(path string, v any) {
			config := g.object(path, v, map[string]func(string, any){
				"mode": g.enum("AUTO", "ANY", "NONE", "VALIDATED"),
				"allowedFunctionNames": func(path string, v any) {
					g.list(path, v, func(path string, v any) {
						if !g.functions[fmt.Sprint(v)] {
							g.fail(path, "is not declared")
						}
					})
				},
			})
			g.mode = fmt.Sprint(config["mode"])
			if config["allowedFunctionNames"] != nil && g.mode != "ANY" && g.mode != "VALIDATED" {
				g.fail(path, "Allowed function names should only be set when mode is ANY or VALIDATED")
			}
		},
	})
}

func (g *geminiReader) embed(v any, model string) {
	g.object("", v, map[string]func(string, any){"requests": func(path string, v any) {
		g.list(path, v, func(path string, v any) {
			r := g.object(path, v, map[string]func(string, any){
				"model": g.text, "outputDimensionality": g.number(1, 1<<20, true), "taskType": g.text, "title": g.text,
				"content": func(path string, v any) {
					g.object(path, v, map[string]func(string, any){"parts": func(path string, v any) {
						g.list(path, v, func(path string, v any) { g.object(path, v, map[string]func(string, any){"text": g.text}, "text") })
					}}, "parts")
				},
			}, "model", "content")
			if r["model"] != "models/"+model {
				g.fail(path, "the model is another than in the address")
			}
		})
	}}, "requests")
}
