/* The passes over the parameters that a client of FedFIbOS cannot do without, each in one loop: the floor of a round.
 *
 * Only a measure. Nothing of the library is compiled, and sums may round otherwise than torch's.
 */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define BLOCK 4096

/* Mask of what is above the bracket; positions and values of what is inside; how many are inside. */
size_t select_scores(const float *score, size_t d, float low, float high, uint8_t *mask, int32_t *place, float *value)
{
    size_t found = 0;
    uint8_t inside[BLOCK];
    for (size_t start = 0; start + BLOCK <= d; start += BLOCK) {
        for (size_t i = 0; i < BLOCK; i++) {
            uint8_t above = score[start + i] > high;
            mask[start + i] = above;
            inside[i] = above == (score[start + i] < low);
        }
        for (size_t i = 0; i < BLOCK; i += 8) {
            uint64_t eight;
            memcpy(&eight, inside + i, 8);
            if (!eight)
                continue;
            for (size_t j = start + i; j < start + i + 8; j++) {
                place[found] = (int32_t)j;
                value[found] = score[j];
                found += inside[j - start];
            }
        }
    }
    return found;
}

/* The client's values, kept as its start and put where it trains. */
void start(const float *global, const uint8_t *held, float *kept, float *values, size_t d)
{
    for (size_t i = 0; i < d; i++)
        kept[i] = values[i] = global[i] * (float)held[i];
}

/* The only step: its squared gradient, and the masked update. */
void only_step(float *squares, const float *gradient, float *values, const uint8_t *held, float lr, size_t d)
{
    for (size_t i = 0; i < d; i++) {
        squares[i] = gradient[i] * gradient[i];
        values[i] -= lr * gradient[i] * (float)held[i];
    }
}

/* A later step. */
void step(float *squares, const float *gradient, float *values, const uint8_t *held, float lr, size_t d)
{
    for (size_t i = 0; i < d; i++) {
        squares[i] += gradient[i] * gradient[i];
        values[i] -= lr * gradient[i] * (float)held[i];
    }
}

/* The update, in the memory of the start; whether it is finite. */
float finish(float *kept, const float *values, size_t d)
{
    float most = 0;
    for (size_t i = 0; i < d; i++) {
        kept[i] -= values[i];
        most = fabsf(kept[i]) > most ? fabsf(kept[i]) : most;
    }
    return most;
}

/* The estimate. */
void estimate(float *squares, const uint8_t *held, float examples, size_t d)
{
    for (size_t i = 0; i < d; i++)
        squares[i] = squares[i] / examples * (float)held[i];
}

/* What the server looks at: the largest magnitude, and that nothing is outside the mask. */
int look(const float *update, const uint8_t *held, size_t d, float *largest)
{
    float most = 0;
    int outside = 0;
    for (size_t i = 0; i < d; i++) {
        most = fabsf(update[i]) > most ? fabsf(update[i]) : most;
        outside |= (update[i] != 0) & !held[i];
    }
    *largest = most;
    return outside;
}

/* Into the sums. */
void add(float *total, const float *update, size_t d)
{
    for (size_t i = 0; i < d; i++)
        total[i] += update[i];
}

void count(uint8_t *holders, const uint8_t *held, size_t d)
{
    for (size_t i = 0; i < d; i++)
        holders[i] += held[i];
}
