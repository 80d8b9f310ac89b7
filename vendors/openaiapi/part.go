package openaiapi

import "encoding/json"

// Part is one part of a content.
type Part struct {
	// Type is text, image_url, input_audio, file or refusal; any other has only Raw.
	Type       string
	Text       string // of type text
	Refusal    string
	ImageURL   *ImageURL
	InputAudio *InputAudio
	File       *File
	Extra      Members
	// Raw is the whole part where its type is not one of the above, or its payload is not what the type asks for.
	Raw json.RawMessage
}

// ImageURL points at an image: https: or data:.
type ImageURL struct {
	URL    string
	Detail string
	// Bare: the part held the URL itself instead of an object, as some servers allow.
	Bare  bool
	Extra Members
}

// InputAudio is a sound clip in base64.
type InputAudio struct {
	Data   string
	Format string
	Extra  Members
}

// File is a document: uploaded before, or in base64 as a data URL.
type File struct {
	FileID   string
	FileData string
	Filename string
	Extra    Members
}

// A part's payload is the member that its type names.
const (
	partText = 1 << iota
	partRefusal
	partImageURL
	partInputAudio
	partFile
)

func payloadOf(partType string) int {
	switch partType {
	case "text":
		return partText
	case "refusal":
		return partRefusal
	case "image_url":
		return partImageURL
	case "input_audio":
		return partInputAudio
	case "file":
		return partFile
	}
	return 0
}

// part reads the part that begins at start and that the decoder has entered. The fields hold it only if it has the
// payload of its type, well formed, and no other; any other part stays Raw.
func (d *decoder) part(p *Part, start int) {
	present, whole := 0, 0
	for d.member() {
		switch string(d.name()) {
		case "type":
			d.mustStr(&p.Type, &p.Extra)
		case "text":
			present |= partText
			whole |= d.payload(&p.Text, &p.Extra, partText)
		case "refusal":
			present |= partRefusal
			whole |= d.payload(&p.Refusal, &p.Extra, partRefusal)
		case "image_url":
			present |= partImageURL
			whole |= d.imageURL(p)
		case "input_audio":
			present |= partInputAudio
			whole |= d.inputAudio(p)
		case "file":
			present |= partFile
			whole |= d.file(p)
		default:
			d.keep(&p.Extra)
		}
	}
	if want := payloadOf(p.Type); d.err == nil && (want == 0 || present != want || whole != want) {
		*p = Part{Type: p.Type, Raw: d.data[start:d.pos:d.pos]}
	}
}

// payload reads a string and returns bit if it was one.
func (d *decoder) payload(field *string, extra *Members, bit int) int {
	if d.kind() != '"' {
		d.keep(extra)
		return 0
	}
	*field = unquote(d.quoted())
	return bit
}

func (d *decoder) imageURL(p *Part) (whole int) {
	p.ImageURL = &ImageURL{}
	if d.kind() == '"' {
		p.ImageURL.Bare = true
		return d.payload(&p.ImageURL.URL, nil, partImageURL)
	}
	if d.object("", &p.Extra) {
		for d.member() {
			switch string(d.name()) {
			case "url":
				whole |= d.payload(&p.ImageURL.URL, &p.ImageURL.Extra, partImageURL)
			case "detail":
				d.str(&p.ImageURL.Detail, &p.ImageURL.Extra)
			default:
				d.keep(&p.ImageURL.Extra)
			}
		}
	}
	return whole
}

func (d *decoder) inputAudio(p *Part) (whole int) {
	p.InputAudio = &InputAudio{}
	if d.object("", &p.Extra) {
		for d.member() {
			switch string(d.name()) {
			case "data":
				whole |= d.payload(&p.InputAudio.Data, &p.InputAudio.Extra, partInputAudio)
			case "format":
				d.str(&p.InputAudio.Format, &p.InputAudio.Extra)
			default:
				d.keep(&p.InputAudio.Extra)
			}
		}
	}
	return whole
}

func (d *decoder) file(p *Part) (whole int) {
	p.File = &File{}
	if d.object("", &p.Extra) {
		for d.member() {
			switch string(d.name()) {
			case "file_id":
				d.str(&p.File.FileID, &p.File.Extra)
			case "file_data":
				d.str(&p.File.FileData, &p.File.Extra)
			case "filename":
				d.str(&p.File.Filename, &p.File.Extra)
			default:
				d.keep(&p.File.Extra)
			}
		}
	}
	if p.File.FileID == "" && p.File.FileData == "" {
		return 0
	}
	return partFile
}
