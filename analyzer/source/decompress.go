package source

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Magic numbers of the compressed forms that are read.
var (
	gzipMagic = []byte{0x1f, 0x8b}
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
)

// frameHeader is the length before each message of the Collector's file
// exporter, big endian.
const frameHeader = 4

// decompress returns the plain bytes of r, whatever the name of the file is, or
// somewhat more than the first max of them. Close must be called on the result.
func decompress(r io.Reader, max int64) (io.ReadCloser, error) {
	br := bufio.NewReaderSize(r, 1<<16)
	head, err := br.Peek(frameHeader + len(zstdMagic))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, gzipMagic):
		zr, err := gzip.NewReader(br)
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF):
			return nil, errCutOff
		case err != nil:
			return nil, fmt.Errorf("bad gzip data: %w", err)
		}
		return zr, nil
	case bytes.HasPrefix(head, zstdMagic):
		zr, err := zstd.NewReader(br, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, fmt.Errorf("bad zstd data: %w", err)
		}
		return zr.IOReadCloser(), nil
	case len(head) > frameHeader && bytes.HasPrefix(head[frameHeader:], zstdMagic):
		zr, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, fmt.Errorf("bad zstd data: %w", err)
		}
		return &framedZstd{src: br, zr: zr, left: max}, nil
	}
	return io.NopCloser(br), nil
}

// framedZstd reads what the Collector's file exporter writes with
// `compression: zstd`: messages that are each compressed alone and preceded by
// their length. It gives the messages in the forms that are known without
// compression: JSON as one document a line, protobuf with lengths before it.
type framedZstd struct {
	src   *bufio.Reader
	zr    *zstd.Decoder
	frame io.LimitedReader // the compressed message being read
	state framedState
	head  []byte // what is to be returned first
	whole bytes.Buffer
	left  int64 // bytes that somebody still wants
}

// maxMessage is the length up to which protobuf messages exist.
const maxMessage = math.MaxInt32

type framedState uint8

const (
	betweenFrames framedState = iota
	inJSON                    // the decoder has more of a JSON message
)

// Read implements io.Reader.
func (f *framedZstd) Read(p []byte) (int, error) {
	for {
		if len(f.head) > 0 {
			n := copy(p, f.head)
			f.head = f.head[n:]
			f.left -= int64(n)
			return n, nil
		}
		if f.state == inJSON {
			n, err := f.zr.Read(p)
			if n > 0 {
				f.left -= int64(n)
				return n, nil
			}
			if err := f.ended(err); err != nil {
				return 0, err
			}
			f.state = betweenFrames
			f.head = []byte("\n")
			continue
		}
		if err := f.next(); err != nil {
			return 0, err
		}
	}
}

// next begins the next message.
func (f *framedZstd) next() error {
	// What the decoder left of the last frame is no part of its message.
	if _, err := io.Copy(io.Discard, &f.frame); err != nil {
		return err
	}
	var length [frameHeader]byte
	if _, err := io.ReadFull(f.src, length[:]); err != nil {
		return err // io.EOF exactly between messages
	}
	f.frame = io.LimitedReader{R: f.src, N: int64(binary.BigEndian.Uint32(length[:]))}
	if err := f.zr.Reset(&f.frame); err != nil {
		return fmt.Errorf("bad zstd data: %w", err)
	}
	var first [1]byte
	if _, err := io.ReadFull(f.zr, first[:]); err != nil {
		return f.ended(err) // nil after an empty message
	}
	if first[0] == '{' || first[0] == '[' {
		f.head = []byte{first[0]}
		f.state = inJSON
		return nil
	}
	// A length comes before protobuf, so the message must be known whole. As a few
	// bytes can decompress to any number, it ends where nobody wants more.
	f.whole.Reset()
	f.whole.Write(make([]byte, frameHeader))
	f.whole.WriteByte(first[0])
	room := max(f.left-int64(f.whole.Len()), 0) + 1
	switch n, err := io.Copy(&f.whole, io.LimitReader(f.zr, min(room, maxMessage))); {
	case err != nil:
		return f.ended(err)
	case n == maxMessage:
		return errors.New("a compressed message is longer than any protobuf message")
	}
	f.head = f.whole.Bytes()
	binary.BigEndian.PutUint32(f.head, uint32(len(f.head)-frameHeader))
	return nil
}

// ended returns what the error of the decoder means for the file: nothing at the
// end of a message. It tells data that ends early, where the frame should have
// more, from data that is wrong.
func (f *framedZstd) ended(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF) && f.frame.N > 0:
		return io.ErrUnexpectedEOF
	case errors.Is(err, io.EOF):
		return nil
	}
	return fmt.Errorf("bad zstd data: %w", err)
}

// Close implements io.Closer.
func (f *framedZstd) Close() error {
	f.zr.Close()
	return nil
}

// stream is the decompressed content of a file. What was looked at ahead can be
// read again. It remembers how reading ended.
type stream struct {
	src     io.Reader
	pending []byte
	left    int64 // bytes that may still come before --max-bytes is reached
	max     int64
	err     error // io.EOF, or what ended the stream
}

// bytesError is the refusal of a file that is too long.
type bytesError int64

func (max bytesError) Error() string {
	return fmt.Sprintf("more than %d bytes after decompression; raise --max-bytes if this is meant", int64(max))
}

func newStream(src io.Reader, max int64) *stream {
	return &stream{src: src, left: max, max: max}
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	if len(s.pending) > 0 {
		n := copy(p, s.pending)
		if s.pending = s.pending[n:]; len(s.pending) == 0 {
			s.pending = nil // looking ahead can have taken much memory
		}
		return n, nil
	}
	return s.fill(p)
}

// fill reads from the source, one byte more than the limit to see its excess.
func (s *stream) fill(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	if int64(len(p))-1 > s.left { // left can be the highest number there is
		p = p[:s.left+1]
	}
	n, err := s.src.Read(p)
	if int64(n) > s.left {
		n, err = int(s.left), bytesError(s.max)
	}
	s.left -= int64(n)
	s.err = err
	return n, err
}

// peek reads ahead until there are n bytes or the stream ends, and returns all
// that is ahead.
func (s *stream) peek(n int) []byte {
	for len(s.pending) < n && s.err == nil {
		if cap(s.pending)-len(s.pending) < 1<<12 {
			s.pending = append(make([]byte, 0, max(2*cap(s.pending), min(n, 1<<16))), s.pending...)
		}
		k, _ := s.fill(s.pending[len(s.pending):cap(s.pending)])
		s.pending = s.pending[:len(s.pending)+k]
	}
	return s.pending
}

// unread puts data before what comes next. It takes data over.
func (s *stream) unread(data []byte) {
	s.pending = append(data, s.pending...)
}

// failed tells whether the stream ended before its proper end.
func (s *stream) failed() bool { return s.err != nil && !errors.Is(s.err, io.EOF) }

// failure returns what ended the stream early: nil at its proper end, and cut
// for input that stops inside compressed data.
func (s *stream) failure() (err error, cut bool) {
	switch {
	case !s.failed():
		return nil, false
	case errors.Is(s.err, io.ErrUnexpectedEOF):
		return nil, true
	}
	return withoutPath(s.err), false
}
