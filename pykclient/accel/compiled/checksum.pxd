# CRC32-C by the processor's own instruction, for bytes that are decoded right after it.
#
# The instruction takes eight bytes a cycle but answers three cycles later, so three lanes of the
# bytes are summed beside each other and put together: a sum is linear, and what appending a lane
# of zeros does to it stands in tables. Where there is no such instruction, `has_instruction` says
# so, and nothing else here may be called.
#
# Owner: tables that `prepare` writes, before there are threads, and nobody changes.
# Source: RFC 3720, appendix B.4; Intel's manual of instructions, CRC32.

from libc.stdint cimport uint32_t

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    #if defined(__GNUC__) && defined(__x86_64__)

    #include <nmmintrin.h>

    #define LANE_BYTES 512
    #define WITH_INSTRUCTION __attribute__((target("sse4.2")))

    static uint32_t lane_of_zeros[4][256];

    static int has_instruction(void) { return __builtin_cpu_supports("sse4.2"); }

    WITH_INSTRUCTION static uint64_t with_word(uint64_t sum, const unsigned char *at)
    {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        return _mm_crc32_u64(sum, word);
    }

    static uint32_t past_lane(uint32_t sum)
    {
        return lane_of_zeros[0][sum & 0xff] ^ lane_of_zeros[1][sum >> 8 & 0xff]
            ^ lane_of_zeros[2][sum >> 16 & 0xff] ^ lane_of_zeros[3][sum >> 24];
    }

    WITH_INSTRUCTION static void prepare(void)
    {
        int place, byte, count;
        for (place = 0; place < 4; place++)
            for (byte = 1; byte < 256; byte++) {
                uint32_t rest = byte & (byte - 1);
                uint64_t sum = (uint64_t)(byte ^ rest) << 8 * place;
                if (rest != 0) {
                    lane_of_zeros[place][byte] =
                        lane_of_zeros[place][rest] ^ lane_of_zeros[place][byte ^ rest];
                    continue;
                }
                for (count = 0; count < LANE_BYTES / 8; count++)
                    sum = _mm_crc32_u64(sum, 0);
                lane_of_zeros[place][byte] = (uint32_t)sum;
            }
    }

    WITH_INSTRUCTION static uint32_t sum_of(const unsigned char *at, size_t size)
    {
        uint64_t first = 0xffffffff;
        while (size >= 3 * LANE_BYTES) {
            uint64_t second = 0, third = 0;
            const unsigned char *stop = at + LANE_BYTES;
            for (; at < stop; at += 8) {
                first = with_word(first, at);
                second = with_word(second, at + LANE_BYTES);
                third = with_word(third, at + 2 * LANE_BYTES);
            }
            first = past_lane(past_lane((uint32_t)first) ^ (uint32_t)second) ^ (uint32_t)third;
            at += 2 * LANE_BYTES;
            size -= 3 * LANE_BYTES;
        }
        for (; size >= 8; at += 8, size -= 8)
            first = with_word(first, at);
        for (; size > 0; at++, size--)
            first = _mm_crc32_u8((uint32_t)first, *at);
        return ~(uint32_t)first;
    }

    #else

    static int has_instruction(void) { return 0; }
    static void prepare(void) {}
    static uint32_t sum_of(const unsigned char *at, size_t size) { (void)at; return (uint32_t)size; }

    #endif
    """
    bint has_instruction() noexcept nogil
    void prepare() noexcept nogil
    uint32_t sum_of(const unsigned char* at, size_t size) noexcept nogil
